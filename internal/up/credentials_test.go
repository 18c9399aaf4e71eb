package up

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/config"
)

// Workers that joined a fleet find it again after its restart: the credentials are the same.
func TestCredentialsOutliveRestart(t *testing.T) {
	dir := t.TempDir()
	start := func(private bool, tenants ...string) config.FleetFile {
		t.Helper()
		c := &config.Config{Data: dir, Tenants: map[string]config.Tenant{}}
		for _, tenant := range tenants {
			c.Tenants[tenant] = config.Tenant{}
		}
		f := &Fleet{o: Options{Config: c, Private: private}}
		file, err := f.credentials()
		if err != nil {
			t.Fatal(err)
		}
		file.Started = time.Time{}
		return file
	}
	first := start(false, "default")
	if d := cmp.Diff(first, start(false, "default")); d != "" {
		t.Errorf("credentials after a restart (-first +second):\n%s", d)
	}
	more := start(false, "default", "acme")
	if more.Token != first.Token || more.NATS.Tenants["default"] != first.NATS.Tenants["default"] ||
		more.NATS.Tenants["acme"].Password == "" {
		t.Errorf("credentials with another tenant = %+v, want those of %+v and new ones", more, first)
	}
	if private := start(true, "default"); private.Token == first.Token {
		t.Error("a private fleet has the token of the other, want a new one")
	}
	info, err := os.Stat(filepath.Join(dir, credentialsName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file of credentials = %v, %v, want mode 0600", info.Mode(), err)
	}
}
