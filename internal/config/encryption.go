package config

import (
	"slices"
	"strings"
)

const minSecret = 32 // characters

// readSecrets reads the files with secrets.
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
	data, err := l.read(file)
	secret := strings.TrimSpace(string(data))
	switch where := l.cfg.Origin(path).Where; {
	case err != nil:
		l.problem(where, path, "%v", err)
	case len(secret) < minSecret:
		l.problem(where, path, "a secret needs at least %d random characters: openssl rand -base64 32", minSecret)
	default:
		return Secret(secret)
	}
	return ""
}

// EncryptionOf returns the secret that encrypts a tenant's workspaces, which is the tenant's or the fleet's, and the
// other secrets with which existing data may be encrypted.
func (c *Config) EncryptionOf(tenant string) (current Secret, old []Secret) {
	tenants, fleet := c.Tenants[tenant].Encryption, c.Workspaces.Encryption
	if tenants.Key == "" {
		return fleet.Key, slices.Concat(tenants.OldKeys, fleet.OldKeys)
	}
	old = slices.Concat(tenants.OldKeys, fleet.OldKeys)
	if fleet.Key != "" {
		old = append(old, fleet.Key)
	}
	return tenants.Key, old
}
