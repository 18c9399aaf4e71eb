package format

import (
	"cmp"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/objects"
)

// Ref names a workspace. Both parts match names.Pattern.
type Ref struct{ Tenant, Workspace string }

// String returns tenant/workspace.
func (r Ref) String() string { return r.Tenant + "/" + r.Workspace }

// Check returns an error unless both parts are names.
func (r Ref) Check() error {
	return cmp.Or(names.Check("tenant", r.Tenant), names.Check("workspace", r.Workspace))
}

// Key returns the key of one of the workspace's objects.
func (r Ref) Key(rest string) string { return r.Tenant + "/w/" + r.Workspace + "/" + rest }

// HeadKey returns HEAD's key.
func (r Ref) HeadKey() string { return r.Key("HEAD") }

// PinsKey returns the pins' key. It ends in HEAD because the pins change too: head modes swap only objects with such
// keys.
func (r Ref) PinsKey() string { return r.Key("pins/HEAD") }

// ManifestPrefix is the prefix of all manifests' keys.
func (r Ref) ManifestPrefix() string { return r.Key("m/") }

// ManifestKey returns the key of the manifest with the given name.
func (r Ref) ManifestKey(name string) string { return r.ManifestPrefix() + name }

// An encrypted object is authenticated with its identity, so that it cannot take another object's place.

func (r Ref) headIdentity() string     { return "HEAD of " + r.String() }
func (r Ref) pinsIdentity() string     { return "pins of " + r.String() }
func (r Ref) manifestIdentity() string { return "manifest of " + r.String() }

// PackKey returns the key of a pack.
func PackKey(tenant string, id objects.Digest) string {
	hex := id.String()
	return PackPrefix(tenant) + hex[:2] + "/" + hex
}

// PackPrefix is the prefix of the keys of a tenant's packs.
func PackPrefix(tenant string) string { return tenant + "/p/" }
