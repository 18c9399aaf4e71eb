package config

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// MirrorAt parses workspaces.mirror.
func (w *Workspaces) MirrorAt() (bucket, prefix string, err error) {
	u, err := url.Parse(w.Mirror)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.Port() != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return "", "", fmt.Errorf("%q is not s3://BUCKET/PREFIX", text.HideCredentials(w.Mirror))
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
		k.bad(key, "in the fleet's bucket, the prefix must begin with _, such as s3://%s/_mirror", bucket)
	}
	if k.c.S3.Heads != HeadsCAS {
		k.bad(key, "requires a store with conditional writes (s3.heads: %s)", HeadsCAS)
	}
	for tenant := range k.c.Tenants {
		if secret, _ := k.c.EncryptionOf(tenant); secret != "" {
			k.bad(key, "would store encrypted workspaces unencrypted (tenant %s): remove the mirror or the encryption",
				tenant)
			break
		}
	}
}
