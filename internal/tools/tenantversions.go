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

// tenantVersions holds the catalogue versions of one tenant that has registered tools.
type tenantVersions struct {
	storedVersion // the current version
	base          *Listing
	overlay       *Overlay
	older         []storedVersion // in order of use, the latest last
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
		v, err := pack(used)
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
	s.opts.Log.InfoContext(ctx, "tenant catalogue loaded",
		"tenant", tenant, "version", t.id, "tools", len(listing.Tools))
	s.setCurrent(ctx, tenant, t)
	return t, nil
}

// setCurrent makes t the tenant's current version and removes old versions beyond maxOldVersions.
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
			s.opts.Log.WarnContext(ctx, "removal of old tenant catalogue failed", "version", oldest, "error", err)
		}
	}
}

func (s *VersionStore) removeOverlay(id string) error {
	if s.inUse("." + id) {
		return nil
	}
	return os.RemoveAll(s.path(id))
}

// inUse reports whether any tenant has a version whose ID ends in suffix.
func (s *VersionStore) inUse(suffix string) bool {
	for _, t := range s.tenants {
		if slices.ContainsFunc(t.all(), func(v storedVersion) bool { return strings.HasSuffix(v.id, suffix) }) {
			return true
		}
	}
	return false
}

// symlinkOverlay writes the overlay's files to Dir/<overlay>, and creates Dir/<base>.<overlay> with symbolic
// links to the overlay and to the base. listing lists the base's tools.
func (s *VersionStore) symlinkOverlay(base, overlay string, files map[string][]byte, listing *Listing) error {
	name := base + "." + overlay
	if _, err := os.Stat(s.path(name)); err == nil {
		return nil
	}
	if _, err := os.Stat(s.path(overlay)); err != nil {
		if err := writeTree(s.opts.Dir, overlay, files); err != nil {
			return err
		}
	}
	symlinks := map[string]string{"__init__.py": base} // to the version ID
	for _, t := range listing.Tools {
		symlinks[t.Package()] = base
	}
	for file := range files {
		dir, _, _ := strings.Cut(file, "/")
		symlinks[dir] = overlay
	}
	return createDir(s.opts.Dir, name, func(tmp string) error {
		err := os.Mkdir(filepath.Join(tmp, "servers"), 0o755)
		for name, id := range symlinks {
			target := filepath.Join("..", "..", id, "servers", name)
			err = errors.Join(err, os.Symlink(target, filepath.Join(tmp, "servers", name)))
		}
		return err
	})
}

// fetchOverlay returns the files of an overlay that a worker uploaded for the tenant.
func (s *VersionStore) fetchOverlay(ctx context.Context, tenant, id string) (map[string][]byte, error) {
	if s.opts.Objects == nil || !versionID.MatchString(id) {
		return nil, fmt.Errorf("fetch registered tools %s of tenant %s: %w", printableName(id), tenant, fs.ErrNotExist)
	}
	archive, err := s.opts.Objects.Get(ctx, overlayKey(tenant, id), objects.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("fetch registered tools %s of tenant %s: %w", id, tenant, err)
	}
	return Version{ID: id, Archive: archive.Data}.files()
}
