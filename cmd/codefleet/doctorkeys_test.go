package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codefleet/codefleet/internal/config"
)

// TestDoctorEncryption checks that doctor reports what is encrypted and warns of secrets that other users can read.
func TestDoctorEncryption(t *testing.T) {
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	closed, open := file("closed", 0o600), file("open", 0o640)
	for name, c := range map[string]struct {
		fleet, acme config.Encryption
		want        checkResult
	}{
		"off": {want: checkResult{"encryption", good, "off; workspaces are unencrypted in the object store", ""}},
		"all": {fleet: config.Encryption{KeyFile: closed}, want: checkResult{
			"encryption", good, "workspaces of all tenants are encrypted in the object store", "",
		}},
		"one": {acme: config.Encryption{KeyFile: closed}, want: checkResult{
			"encryption", good, "workspaces of acme are encrypted in the object store, others are not", "",
		}},
		"open": {acme: config.Encryption{KeyFile: open}, want: checkResult{
			"encryption", warning, "other users of this host can read " + open + " (mode 0640)", "chmod 600 " + open,
		}},
		"old secret": {
			fleet: config.Encryption{KeyFile: closed, OldKeyFiles: []string{open}},
			want: checkResult{
				"encryption", warning, "other users of this host can read " + open + " (mode 0640)",
				"chmod 600 " + open,
			},
		},
	} {
		p := &hostCheck{
			Config: &config.Config{Tenants: map[string]config.Tenant{"acme": {Encryption: c.acme}, "corp": {}}},
		}
		p.Workspaces.Encryption = c.fleet
		if got := p.encryption(t.Context()); got != c.want {
			t.Errorf("%s: encryption() = %+v, want %+v", name, got, c.want)
		}
	}
}
