package embedded_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/codefleet/codefleet/internal/embedded"
)

// The accounts can be included in the configuration of a NATS server.
func TestAccountsAreIncluded(t *testing.T) {
	conf, err := embedded.NATSAccounts(embedded.NATSUser{User: "fleet", Password: "f"},
		map[string]embedded.NATSUser{"acme": {User: "acme", Password: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"codefleet.conf": conf, "nats.conf": "port: -1\njetstream { sync_interval: always }\ninclude codefleet.conf\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o, err := server.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Accounts) != 2 || len(o.Users) != 2 {
		t.Errorf("%d accounts, %d users, want 2 and 2", len(o.Accounts), len(o.Users))
	}
}
