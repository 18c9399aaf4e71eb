package up

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/httpserve"
)

// TestListen checks that an address on which a part cannot listen is found before anything starts.
func TestListen(t *testing.T) {
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const anyPort, mine = "127.0.0.1:0", "127.0.0.1:PORT"
	taken := other.Addr().String()
	for _, c := range []struct{ http, nats, s3, want string }{
		{anyPort, anyPort, anyPort, ""},
		{taken, anyPort, anyPort, taken + " is in use by another process: stop it, or choose another"},
		{anyPort, taken, anyPort, "choose another address with --nats"},
		{anyPort, anyPort, taken, "choose another address with --s3"},
		{mine, mine, anyPort, "--http and --nats have the same port, "},
		{anyPort, mine, mine, "--nats and --s3 have the same port, "},
		{mine, "203.0.113.5:PORT", anyPort, "is not an address of this host: choose another address with --nats"},
		{anyPort, "203.0.113.5:1", anyPort, "203.0.113.5:1 is not an address of this host"},
	} {
		err := listenFree(t, c.http, c.nats, c.s3)
		_, wrong := errors.AsType[*httpserve.AddressError](err)
		if c.want == "" && err != nil ||
			c.want != "" && (!wrong && !errors.Is(err, ErrSamePort) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("listen(%s, %s, %s) = %v, want %q", c.http, c.nats, c.s3, err, c.want)
		}
	}
}

// listenFree calls listen with a free port in place of PORT. If another process takes the port meanwhile, it tries
// again.
func listenFree(t *testing.T, http, nats, s3 string) error {
	t.Helper()
	for attempt := 1; ; attempt++ {
		free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(free.Addr().String())
		at := func(addr string) string { return strings.ReplaceAll(addr, "PORT", port) }
		free.Close()
		l, err := listen(t.Context(), &config.Config{
			HTTP: config.HTTP{Addr: at(http)}, NATS: config.NATS{Addr: at(nats)}, S3: config.S3{Addr: at(s3)},
		})
		if err == nil {
			l.Close()
		}
		if err == nil || attempt == 5 || !strings.Contains(err.Error(), ":"+port+" is in use by another process") {
			return err
		}
	}
}
