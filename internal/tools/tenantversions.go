package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/objects"
)

// tenantVersions holds the versions of one tenant with registered tools.
type tenantVersions struct {
	storedVersion // the current one
	base          *Listing
	overlay       *Overlay
	older         []storedVersion // the newest last
}

// maxOldVersions is how many earlier versions a tenant's running tasks can still use.
const maxOldVersions = 32

func (t *tenantVersions) all() []storedVersion { return append(slices.Clone(t.older), t.storedVersion) }

// extend creates the tenant's version from the current base and the overlay.
func (s *VersionStore) extend(ctx context.Context, tenant string, o *Overlay) (*tenantVersions, error) {
	listing, used, err := Extend(s.base.listing, o)
	if err != nil {
		return nil, err
	}
	t := &tenantVersions{storedVersion: storedVersion{s.base.id, listing}, base: s.base.listing, overlay: o}
	if len(used) > 0 {
		v, err := packOverlay(used)
		if err != nil {
			return nil, err
		}
		if err := s.symlinkOverlay(s.base.id, v.ID, used, s.base.listing); err != nil {
			return nil, err
		}
		s.upload(ctx, overlayKey(tenant, v.ID), v)
		t.id += "." + v.ID
	}
	for _, b := range listing.Broken {
		if !slices.Contains(s.base.listing.Broken, b) {
			s.opts.Log.WarnContext(ctx, "rejected tool registration",
				"tenant", tenant, "tool", b.Path, "reason", b.Message)
		}
	}
	s.opts.Log.InfoContext(ctx, "catalogue of a tenant loaded",
		"tenant", tenant, "version", t.id, "tools", len(listing.Tools))
	s.setCurrent(ctx, tenant, t)
	return t, nil
}

// setCurrent makes t the tenant's current version and removes the oldest ones beyond maxOldVersions.
func (s *VersionStore) setCurrent(ctx context.Context, tenant string, t *tenantVersions) {
	if old := s.tenants[tenant]; old != nil {
		t.older = slices.DeleteFunc(old.all(), func(v storedVersion) bool { return v.id == t.id })
	}
	s.tenants[tenant] = t
	for len(t.older) > maxOldVersions {
		oldest := t.older[0].id
		t.older = slices.Delete(t.older, 0, 1)
		_, overlay, extended := strings.Cut(oldest, ".")
		if !extended || s.inUse(oldest) {
			continue
		}
		if err := errors.Join(os.RemoveAll(s.path(oldest)), s.removeOverlay(overlay)); err != nil {
			s.opts.Log.WarnContext(ctx, "removal of a tenant's old catalogue failed", "version", oldest, "error", err)
		}
	}
}

func (s *VersionStore) removeOverlay(id string) error {
	if s.inUse("." + id) {
		return nil
	}
	return os.RemoveAll(s.path(id))
}

// inUse reports whether the id of any tenant's version has the suffix.
func (s *VersionStore) inUse(suffix string) bool {
	for _, t := range s.tenants {
		if slices.ContainsFunc(t.all(), func(v storedVersion) bool { return strings.HasSuffix(v.id, suffix) }) {
			return true
		}
	}
	return false
}

// symlinkOverlay writes the overlay's files to dir/<overlay>, and creates dir/<base>.<overlay> with symbolic
// links to the overlay and to the base. listing lists the tools of the base.
func (s *VersionStore) symlinkOverlay(base, overlay string, files map[string][]byte, listing *Listing) error {
	target := s.path(base + "." + overlay)
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	if _, err := os.Stat(s.path(overlay)); err != nil {
		if err := writeTree(s.opts.Dir, overlay, files); err != nil {
			return err
		}
	}
	links := map[string]string{"__init__.py": base}
	for _, t := range listing.Tools {
		links[t.Package()] = base
	}
	for name := range files {
		dir, _, _ := strings.Cut(name, "/")
		links[dir] = overlay
	}
	tmp, err := os.MkdirTemp(s.opts.Dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // after the rename there is nothing to remove
	err = errors.Join(os.Chmod(tmp, 0o755), os.Mkdir(filepath.Join(tmp, "servers"), 0o755))
	for name, id := range links {
		source := filepath.Join("..", "..", id, "servers", name)
		err = errors.Join(err, os.Symlink(source, filepath.Join(tmp, "servers", name)))
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp, target)
}

// fetchOverlay returns the files of one of the tenant's overlays.
func (s *VersionStore) fetchOverlay(ctx context.Context, tenant, id string) (map[string][]byte, error) {
	if s.opts.Objects == nil || !versionID.MatchString(id) {
		return nil, fmt.Errorf("registered tools %s of tenant %s: %w", printableName(id), tenant, fs.ErrNotExist)
	}
	archive, err := s.opts.Objects.Get(ctx, overlayKey(tenant, id), objects.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("fetch the registered tools of tenant %s: %w", tenant, err)
	}
	return Version{ID: id, Archive: archive.Data}.files()
}
