package assembly

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/codefleet/codefleet/internal/config"
)

// All processes of a host have the same key, also those that start at the same time. Only the user can read it.
func TestHostKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "privacy.key")
	keys := make([]string, 8)
	var started sync.WaitGroup
	for i := range keys {
		started.Go(func() {
			key, err := hostKey(path)
			if err != nil {
				t.Errorf("hostKey = %v, want nil", err)
			}
			keys[i] = string(key)
		})
	}
	started.Wait()
	for _, key := range keys {
		if key != keys[0] || len(key) < 32 {
			t.Errorf("keys %q, want the same one of at least 32 characters", keys)
			break
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v (%v), want 0600", info, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 2 {
		t.Errorf("the directory contains %v (%v), want its mark and the key only", left, err)
	}
}

// TestDamagedHostKey checks that an empty or short file is not a secret, and that it stays as it is.
func TestDamagedHostKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "privacy.key")
	for _, text := range []string{"", "\n", strings.Repeat("x", 31) + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := hostKey(path)
		if err == nil || key != nil || !strings.Contains(err.Error(), "it needs at least 32") {
			t.Errorf("hostKey of a file with %q = %q, %v; want an error", text, key, err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != text {
			t.Errorf("the file has %q (%v), want %q", data, err, text)
		}
	}
}

// Texts that cannot be searched are not shown.
func TestWithoutKey(t *testing.T) {
	c := config.Default()
	c.Privacy.Mode, c.Data = config.PrivacyEgress, "/dev/null/data"
	if got := logPrivacy(c)("ada@example.org"); strings.Contains(got, "ada") || !strings.Contains(got, "key_file") {
		t.Errorf("log line = %q, want the reason why it is withheld", got)
	}
	if got := clientPrivacy(c)("default", "")(t.Context(), "ada@example.org"); strings.Contains(got, "ada") {
		t.Errorf("text for MCP clients = %q, want it withheld", got)
	}
	if _, err := openPrivacy(c); err == nil {
		t.Error("openPrivacy without a key = nil, want an error")
	}
	c.Privacy.Mode = config.PrivacyOff
	if logPrivacy(c) != nil || clientPrivacy(c)("default", "") != nil || clientPrivacy(c)("default", "off") != nil {
		t.Error("with the mode off texts are replaced, want them unchanged")
	}
	if got := clientPrivacy(c)("default", "egress")(t.Context(), "ada@example.org"); strings.Contains(got, "ada") {
		t.Errorf("text for MCP clients of a fleet with egress = %q, want it withheld", got)
	}
}
