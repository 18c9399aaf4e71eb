package httpserve

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// TestListen checks that the error for an address says what is wrong with it, and which flag has it.
func TestListen(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0", "--http")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	absent := &net.DNSError{Name: "nosuchhost", IsNotFound: true}
	unknown := &AddressError{"nosuchhost:1", "--s3", &net.OpError{Err: absent}}
	timeout := &AddressError{"slow:1", "--s3", &net.OpError{Err: &net.DNSError{Name: "slow", IsTimeout: true}}}
	for _, c := range []struct {
		addr, want string
		err        error
	}{
		{l.Addr().String(), " is in use by another process: stop it, or choose another address with --http", nil},
		{"203.0.113.5:1", "203.0.113.5:1 is not an address of this host: choose another address with --http", nil},
		{"", "nosuchhost:1 names an unknown host, nosuchhost: choose another address with --s3", unknown},
		{"", "slow:1 cannot be used: choose another address with --s3", timeout},
	} {
		if c.err == nil {
			_, c.err = Listen(t.Context(), c.addr, "--http")
		}
		if _, ok := errors.AsType[*AddressError](c.err); !ok || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("Listen(%s) = %v, want %q", c.addr, c.err, c.want)
		}
	}
}

// TestAddress checks that the address of a listener on all interfaces has the host of the setting, not [::].
func TestAddress(t *testing.T) {
	for setting, want := range map[string]string{"0.0.0.0:0": "0.0.0.0:", "127.0.0.1:0": "127.0.0.1:"} {
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", setting)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if got := Address(l, setting); !strings.HasPrefix(got, want) || strings.HasSuffix(got, ":0") {
			t.Errorf("Address(%s) = %s, want %s and a port", setting, got, want)
		}
	}
}
