package format

import (
	"fmt"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/objects"
)

// Ref names a workspace. Both parts are slugs: ^[a-z0-9][a-z0-9-]{0,62}$.
type Ref struct{ Tenant, Workspace string }

// String returns tenant/workspace.
func (r Ref) String() string { return r.Tenant + "/" + r.Workspace }

// Check returns an error unless both parts are slugs.
func (r Ref) Check() error {
	if !names.IsSlug(r.Tenant) {
		return fmt.Errorf("tenant name %q is not a slug", r.Tenant)
	}
	if !names.IsSlug(r.Workspace) {
		return fmt.Errorf("workspace name %q is not a slug", r.Workspace)
	}
	return nil
}

// Key returns the key of an object of the workspace.
func (r Ref) Key(rest string) string { return r.Tenant + "/w/" + r.Workspace + "/" + rest }

// HeadKey returns the key of HEAD.
func (r Ref) HeadKey() string { return r.Key("HEAD") }

// PinsKey returns the key of the pins.
func (r Ref) PinsKey() string { return r.Key("pins/HEAD") }

// ManifestPrefix begins the keys of all manifests.
func (r Ref) ManifestPrefix() string { return r.Key("m/") }

// ManifestKey returns the key of the manifest of a name.
func (r Ref) ManifestKey(name string) string { return r.Key("m/" + name) }

// An encrypted object is authenticated with its identity: it decrypts as that object only.

func (r Ref) headIdentity() string     { return "HEAD of " + r.String() }
func (r Ref) pinsIdentity() string     { return "pins of " + r.String() }
func (r Ref) manifestIdentity() string { return "manifest of " + r.String() }

// PackKey returns the key of a pack.
func PackKey(tenant string, id objects.Digest) string {
	hex := id.String()
	return PackPrefix(tenant) + hex[:2] + "/" + hex
}

// PackPrefix begins the keys of all packs of a tenant.
func PackPrefix(tenant string) string { return tenant + "/p/" }
