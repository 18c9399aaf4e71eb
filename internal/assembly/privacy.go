package assembly

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/dirsync"
	"github.com/codefleet/codefleet/internal/guardrails/privacy"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/limited"
)

// openPrivacy returns the fleet's privacy filter, or nil if no tenant has one.
func openPrivacy(c *config.Config) (*privacy.Filter, error) {
	if !c.PrivacyEnabled() {
		return nil, nil
	}
	return newPrivacy(c)
}

func newPrivacy(c *config.Config) (*privacy.Filter, error) {
	o := c.PrivacyOptions()
	if len(o.Key) == 0 {
		var err error
		if o.Key, err = hostKey(filepath.Join(c.Data, "privacy.key")); err != nil {
			return nil, fmt.Errorf("privacy: %w (to use another file, set privacy.key_file)", err)
		}
	}
	return privacy.NewFilter(o)
}

const (
	maxKey = 1 << 20 // size limit of a file with a key in bytes
	minKey = 32      // characters of a secret
)

// hostKey returns the secret in a file. If the file does not exist, hostKey creates it with a random secret.
func hostKey(path string) ([]byte, error) {
	key, err := readKey(path)
	if err == nil {
		_ = dirsync.MarkDataDir(filepath.Dir(path)) // fails if the directory can only be read
		return key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := dirsync.MarkDataDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "privacy-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(rand.Text() + rand.Text() + "\n")
	if err == nil {
		err = f.Sync() // otherwise the file may be empty after a power failure
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	// Another process may create the file at the same time: the first one wins.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return readKey(path)
}

// readKey returns the secret in a file. It refuses one that is too short, such as that of an empty file.
func readKey(path string) ([]byte, error) {
	key, err := limited.ReadFile(path, maxKey)
	if err != nil {
		return nil, err
	}
	if key = bytes.TrimSpace(key); len(key) < minKey {
		return nil, fmt.Errorf("the secret in %s has %d characters, but it needs at least %d: restore the file, or "+
			"remove it for a new secret, whose tokens differ from the earlier ones", path, len(key), minKey)
	}
	return key, nil
}

// withheld takes the place of a text that cannot be searched for values.
func withheld(err error) string { return fmt.Sprintf("(withheld: %v)", err) }

// logPrivacy returns a function that replaces values in log lines, or nil if privacy is off for all tenants. The
// function opens the filter for the first line, because a process logs before its data directory is known to be usable.
func logPrivacy(c *config.Config) func(string) string {
	if !c.PrivacyEnabled() {
		return nil
	}
	open := sync.OnceValues(func() (func(string) string, error) {
		f, err := newPrivacy(c)
		if err != nil {
			return nil, err
		}
		return f.Log(), nil
	})
	return func(line string) string {
		replace, err := open()
		if err != nil {
			return withheld(err)
		}
		return replace(line)
	}
}

// clientPrivacy returns a function that selects, for a tenant, the function that replaces values in texts for its MCP
// clients. It selects nil if the clients may see the values. required is the mode that the fleet reports, which may be
// stricter than that of these settings.
func clientPrivacy(c *config.Config) func(tenant, required string) func(context.Context, string) string {
	open := sync.OnceValues(func() (*privacy.Filter, error) { return newPrivacy(c) })
	return func(tenant, required string) func(context.Context, string) string {
		isRequired := required != "" && required != config.PrivacyOff
		if !isRequired && !c.PrivacyEnabled() {
			return nil
		}
		f, err := open()
		if err != nil {
			return func(context.Context, string) string { return withheld(err) }
		}
		if isRequired {
			return f.AlwaysReplacer(tenant)
		}
		return f.Replacer(tenant)
	}
}

// sessionText returns a function that selects, for a tenant, the function that replaces values in the tenant's
// checkpoints.
func sessionText(c *config.Config) jobs.SessionText {
	replacer := clientPrivacy(c)
	return func(tenant string) func(context.Context, string) string { return replacer(tenant, "") }
}
