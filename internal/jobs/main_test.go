package jobs

import (
	"crypto/rand"
	"testing"

	"go.uber.org/goleak"

	"github.com/codefleet/codefleet/internal/faulttest"
)

func TestMain(m *testing.M) {
	faulttest.Main(leakChecked{m}, map[string]faulttest.Role{"nats": natsRole, "worker": workerRole})
}

// leakChecked fails if passing tests leave goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code == 0 {
		err := goleak.Find(
			// The server waits for the origin of a mirror for some seconds, even if the mirror is gone.
			goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*stream).setupMirrorConsumer.func3"),
			// nats.go starts this for each object that it stores. It waits for ever if the object is stored before it
			// begins.
			goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
		if err != nil {
			println(err.Error())
			return 1
		}
	}
	return code
}

func randomToken() string { return rand.Text()[:6] }
