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

func (r Ref) Check() error {
	if !names.IsSlug(r.Tenant) {
		return fmt.Errorf("tenant name %q is not a slug", r.Tenant)
	}
	if !names.IsSlug(r.Workspace) {
		return fmt.Errorf("workspace name %q is not a slug", r.Workspace)
	}
	return nil
}

func (r Ref) Key(rest string) string             { return r.Tenant + "/w/" + r.Workspace + "/" + rest }
func (r Ref) HeadKey() string                    { return r.Key("HEAD") }
func (r Ref) PinsKey() string                    { return r.Key("pins/HEAD") }
func (r Ref) ManifestsKey() string               { return r.Key("m/") }
func (r Ref) ManifestKey(manifest string) string { return r.Key("m/" + manifest) }

// The identity of an encrypted object is authenticated with it: it decrypts as that object only.
func (r Ref) HeadIdentity() string     { return "HEAD of " + r.String() }
func (r Ref) PinsIdentity() string     { return "pins of " + r.String() }
func (r Ref) ManifestIdentity() string { return "manifest of " + r.String() }

func PackKey(tenant string, id objects.Digest) string {
	hex := id.String()
	return PacksKey(tenant) + hex[:2] + "/" + hex
}

func PacksKey(tenant string) string { return tenant + "/p/" }
