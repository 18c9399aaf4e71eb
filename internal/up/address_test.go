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
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	const anyPort = "127.0.0.1:0"
	_, port, _ := net.SplitHostPort(free.Addr().String())
	taken, mine := other.Addr().String(), free.Addr().String()
	for _, c := range []struct{ http, nats, s3, want string }{
		{mine, anyPort, anyPort, ""},
		{taken, anyPort, anyPort, taken + " is in use by another process: stop it, or choose another"},
		{anyPort, taken, anyPort, "choose another address with --nats"},
		{mine, anyPort, taken, "choose another address with --s3"},
		{mine, mine, anyPort, "--http and --nats have the same port, "},
		{anyPort, mine, mine, "--nats and --s3 have the same port, "},
		{mine, "203.0.113.5:" + port, anyPort, "is not an address of this host: choose another address with --nats"},
		{anyPort, "203.0.113.5:1", anyPort, "203.0.113.5:1 is not an address of this host"},
	} {
		conf := &config.Config{
			HTTP: config.HTTP{Addr: c.http}, NATS: config.NATS{Addr: c.nats}, S3: config.S3{Addr: c.s3},
		}
		l, err := listen(t.Context(), conf)
		if err == nil {
			l.Close()
		}
		_, wrong := errors.AsType[*httpserve.AddressError](err)
		if c.want == "" && err != nil ||
			c.want != "" && (!wrong && !errors.Is(err, ErrSamePort) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("listen(%s, %s, %s) = %v, want %q", c.http, c.nats, c.s3, err, c.want)
		}
	}
}

// TestAddressOf checks that the address of a listener on all interfaces has the host of the setting, not [::].
func TestAddressOf(t *testing.T) {
	for setting, want := range map[string]string{"0.0.0.0:0": "0.0.0.0:", "127.0.0.1:0": "127.0.0.1:"} {
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", setting)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if got := addressOf(l, setting); !strings.HasPrefix(got, want) || strings.HasSuffix(got, ":0") {
			t.Errorf("addressOf(%s) = %s, want %s and a port", setting, got, want)
		}
	}
}
