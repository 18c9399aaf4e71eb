package up

import (
	"net"
	"strings"
	"testing"
)

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
