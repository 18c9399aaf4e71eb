package up

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/logtest"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// TestS3IsStartedAgain kills the process of the object store, twice. The fleet stays up, and the store is back at the
// same address.
func TestS3IsStartedAgain(t *testing.T) {
	log := &logtest.Log{}
	f := startIdle(t, config.Default(), log, func(accept, _ context.Context) { <-accept.Done() })
	for range 2 {
		old := f.s3.Load()
		if err := syscall.Kill(old.Pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitS3(t, f, old, log)
	}
	select {
	case <-f.Done():
		t.Errorf("the fleet has ended: %v, want it to run;\n%s", f.err, log.String())
	default:
	}
	if err := f.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
}

// startIdle starts a fleet whose worker takes no task and ends when wait returns.
func startIdle(
	t *testing.T, conf *config.Config, log *logtest.Log, wait func(accept, work context.Context),
) *Fleet {
	t.Helper()
	conf.Data, conf.Tenants = t.TempDir(), map[string]config.Tenant{config.DefaultTenant: {}}
	tel, err := telemetry.Setup(t.Context(), assembly.Telemetry(conf, "up", "test", log))
	if err != nil {
		t.Fatal(err)
	}
	f, err := Start(t.Context(), Options{
		Config: conf, Telemetry: tel, Version: "test", Private: true,
		Worker: func(accept, work context.Context, p assembly.WorkerOptions) error {
			if _, err := p.Join(accept); err != nil {
				return err
			}
			p.Ready()
			wait(accept, work)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// awaitS3 waits until another process of the object store responds.
func awaitS3(t *testing.T, f *Fleet, old *embedded.S3, log *logtest.Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for every := time.NewTicker(20 * time.Millisecond); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.File.S3.Endpoint, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if f.s3.Load() != old {
				return
			}
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			t.Fatalf("the object store does not respond; log:\n%s", log.String())
		}
	}
}

// TestDrainWithAStoppedStore checks that a fleet ends within a second after worker.drain, even if its object store does
// not respond and its worker interrupts the tasks only at that time.
func TestDrainWithAStoppedStore(t *testing.T) {
	conf := config.Default()
	conf.Worker.Drain = time.Second
	f := startIdle(t, conf, &logtest.Log{}, func(_, work context.Context) { <-work.Done() })
	if err := syscall.Kill(f.s3.Load().Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	start, endLag := time.Now(), faulttest.MeasureLag()
	if err := f.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	if took, lag := time.Since(start), endLag(); took-lag > conf.Worker.Drain+time.Second {
		t.Errorf("Close() took %v, %v of it without a processor, want at most a second more than %v",
			took, lag, conf.Worker.Drain)
	}
}

// The error of a part that ends too early says so, and why if the part does.
func TestPartEnds(t *testing.T) {
	for err, want := range map[error]string{
		nil:                     "the worker ended unexpectedly",
		errors.New("no memory"): "the worker ended unexpectedly: no memory",
	} {
		f := &Fleet{}
		var life context.Context
		life, f.stop = context.WithCancelCause(t.Context())
		f.part(life, "the worker", func() error { return err })
		<-life.Done()
		if got := context.Cause(life); got.Error() != want {
			t.Errorf("the fleet stopped for %q, want %q", got, want)
		}
	}
}
