package config

import (
	"slices"
	"strings"
)

const leastSecret = 32 // characters

// readSecrets fills the secrets that are given as files.
func (l *loader) readSecrets(path string, e *Encryption) {
	if e.KeyFile != "" {
		e.Key = l.readSecret(path+".key_file", e.KeyFile)
	}
	for _, file := range e.OldKeyFiles {
		if secret := l.readSecret(path+".old_key_files", file); secret != "" {
			e.OldKeys = append(e.OldKeys, secret)
		}
	}
}

func (l *loader) readSecret(path, file string) Secret {
	data, err := readSmall(file)
	secret := strings.TrimSpace(string(data))
	switch where := l.cfg.Origin(path).Where; {
	case err != nil:
		l.problem(where, path, "%v", err)
	case len(secret) < leastSecret:
		l.problem(where, path, "a secret has at least %d random characters: openssl rand -base64 32", leastSecret)
	default:
		return Secret(secret)
	}
	return ""
}

// EncryptionOf returns what a tenant's workspaces are encrypted with: its own secret, or the fleet's. What the
// other one has encrypted can be read.
func (c *Config) EncryptionOf(tenant string) (current Secret, old []Secret) {
	own, fleet := c.Tenants[tenant].Encryption, c.Workspaces.Encryption
	if own.Key == "" {
		return fleet.Key, slices.Concat(own.OldKeys, fleet.OldKeys)
	}
	old = slices.Concat(own.OldKeys, fleet.OldKeys)
	if fleet.Key != "" {
		old = append(old, fleet.Key)
	}
	return own.Key, old
}
