package config

import (
	"fmt"
	"net/url"
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

// MirrorAt returns the bucket and prefix of workspaces.mirror.
func (w *Workspaces) MirrorAt() (bucket, prefix string, err error) {
	u, err := url.Parse(w.Mirror)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.Port() != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", "", fmt.Errorf("%q is not of the form s3://BUCKET/PREFIX", w.Mirror)
	}
	return u.Host, strings.Trim(u.Path, "/"), nil
}

func (k *checker) mirror() {
	const key = "workspaces.mirror"
	w := &k.c.Workspaces
	if w.Mirror == "" {
		return
	}
	bucket, prefix, err := w.MirrorAt()
	switch {
	case err != nil:
		k.bad(key, "%v", err)
	case bucket == k.c.S3.Bucket && !strings.HasPrefix(prefix, "_"):
		k.bad(key, "is in the bucket of s3, where its prefix begins with _: s3://%s/_mirror", bucket)
	}
	if k.c.S3.Heads != HeadsCAS {
		k.bad(key, "needs a store with conditional writes, s3.heads: %s", HeadsCAS)
	}
	for tenant := range k.c.Tenants {
		if key, _ := k.c.EncryptionOf(tenant); key != "" {
			k.bad("workspaces.mirror", "would have in the clear what is encrypted (tenant %s): take out one of them", tenant)
			break
		}
	}
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
