package embedded_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/logtest"
)

// TestMalformedMessagesAreNotLogged sends malformed commands, and checks that the server's log has none of their bytes.
func TestMalformedMessagesAreNotLogged(t *testing.T) {
	var log logtest.Log
	acme := embedded.NATSUser{User: "acme", Password: "pw"}
	n := start(t, embedded.NATSOptions{
		Tenants: map[string]embedded.NATSUser{"acme": acme},
		Log:     slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	const connect = `CONNECT {"user":"acme","pass":"pw","name":"jane-doe \" '","lang":"go","version":"1","headers":true}`
	for _, lines := range []string{
		connect + "\r\njane-doe %d\r\n",
		connect + "\r\nPUB \"jane-doe' x\r\n",
		connect + "\r\nPUB jane-doe 1 2 3 4\r\n",
		connect + "\r\nHPUB jane-doe jane-doe jane-doe\r\n",
		connect + "\r\nSUB\tjane-doe\tjane-doe\tjane-doe\tjane-doe\r\n",
		connect + "\r\nPUB other.jane-doe 1\r\nx\r\nPING\r\nPUB x y\r\n",
		connect + "\r\nPUB " + strings.Repeat("jane-doe", 2000) + "\r\n",
		"CONNECT {\"user\":\"jane-doe\",\"pass\":\"jane-doe\"}\r\nPING\r\n",
		"CONNECT jane-doe\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.URL(), "nats://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(conn, lines); err != nil {
			t.Error(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Error(err)
		}
		_, _ = io.ReadAll(conn) // until the server closes the connection
		conn.Close()
	}
	if text := log.String(); strings.Contains(text, "jane") ||
		!strings.Contains(text, "processPub Parse Error") || !strings.Contains(text, "acme/user:acme") ||
		strings.Count(text, "cid:") < 6 {
		t.Errorf("log = %s; want the parse error, the account and six connections, without the clients' text", text)
	}
}
