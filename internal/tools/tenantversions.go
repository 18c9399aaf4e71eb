package tools

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/objects"
)

// tenantVersions holds the catalogue versions of one tenant that has registered tools or skills.
type tenantVersions struct {
	Installed             // the current version
	base      *Listing    // the fleet's tools from which it was made; nil if VersionStore.Kept loaded it
	overlay   *Overlay    // the overlay from which it was made
	older     []Installed // in the order in which they stopped being current
}

// maxOldVersions is how many earlier versions of a tenant stay on this host, in addition to those that tasks hold. Kept
// rebuilds others.
const maxOldVersions = 32

func (t *tenantVersions) all() []Installed { return append(slices.Clone(t.older), t.Installed) }

// dirPrefix returns the random prefix of the names of the tenant's directories. Other tenants cannot guess it.
func (s *VersionStore) dirPrefix(tenant string) string {
	if s.dirPrefixes[tenant] == "" {
		s.dirPrefixes[tenant] = strings.ToLower(rand.Text())
	}
	return s.dirPrefixes[tenant]
}

// extend creates the tenant's version from the current base and the overlay, uploads the overlay, and makes the version
// the tenant's current one.
func (s *VersionStore) extend(ctx context.Context, tenant string, o *Overlay) (*tenantVersions, error) {
	listing, used, err := Extend(s.base.Listing, o)
	if err != nil {
		return nil, err
	}
	t := &tenantVersions{Installed: s.base, base: s.base.Listing, overlay: o}
	if len(used) > 0 {
		v, err := pack(used)
		if err != nil {
			return nil, err
		}
		if t.Installed, err = s.symlinkOverlay(tenant, s.base, v.ID, used); err != nil {
			return nil, err
		}
		s.upload(ctx, overlayKey(tenant, v.ID), v)
	}
	t.Listing = listing
	for _, b := range listing.Broken {
		if !slices.Contains(s.base.Listing.Broken, b) {
			s.opts.Log.WarnContext(ctx, "rejected tool registration",
				"tenant", tenant, "tool", b.Path, "reason", b.Message)
		}
	}
	s.opts.Log.InfoContext(ctx, "tenant catalogue loaded",
		"tenant", tenant, "version", t.ID, "tools", len(listing.Tools))
	s.setCurrent(ctx, tenant, t)
	return t, nil
}

// setCurrent makes t the tenant's current version. Of the older ones, it keeps the last maxOldVersions and those
// that tasks hold, and removes the others.
func (s *VersionStore) setCurrent(ctx context.Context, tenant string, t *tenantVersions) {
	if old := s.tenants[tenant]; old != nil {
		t.older = slices.DeleteFunc(old.all(), func(v Installed) bool { return v.ID == t.ID })
	}
	s.tenants[tenant] = t
	for i := 0; i < len(t.older)-maxOldVersions; {
		oldest := t.older[i]
		if s.held(oldest) {
			i++
			continue
		}
		t.older = slices.Delete(t.older, i, i+1)
		_, overlay, extended := strings.Cut(oldest.ID, ".")
		if !extended {
			continue
		}
		err := os.RemoveAll(s.path(oldest.Dir))
		if !t.has("." + overlay) {
			err = errors.Join(err, os.RemoveAll(s.path(s.overlayDir(tenant, overlay))))
		}
		if err != nil {
			s.opts.Log.WarnContext(ctx, "removal of old tenant catalogue failed", "version", oldest.ID, "error", err)
		}
	}
}

// has reports whether the tenant has a version whose ID ends in suffix.
func (t *tenantVersions) has(suffix string) bool {
	return slices.ContainsFunc(t.all(), func(v Installed) bool { return strings.HasSuffix(v.ID, suffix) })
}

// overlayDir returns the name of the directory with the tenant's overlay.
func (s *VersionStore) overlayDir(tenant, overlay string) string {
	return s.dirPrefix(tenant) + "." + overlay
}

// symlinkOverlay writes the overlay's files to a directory of the tenant, and creates the directory of the version
// <base>.<overlay> with symbolic links to the overlay and to the base. It returns this version without its Listing.
func (s *VersionStore) symlinkOverlay(
	tenant string, base Installed, overlay string, files map[string][]byte,
) (Installed, error) {
	v := Installed{ID: base.ID + "." + overlay, Dir: s.dirPrefix(tenant) + "." + base.ID + "." + overlay}
	if _, err := os.Stat(s.path(v.Dir)); err == nil {
		return v, nil
	}
	overlayDir := s.overlayDir(tenant, overlay)
	if _, err := os.Stat(s.path(overlayDir)); err != nil {
		if err := writeTree(s.opts.Dir, overlayDir, files); err != nil {
			return v, err
		}
	}
	entries, err := os.ReadDir(filepath.Join(s.path(base.ID), serversDir))
	if err != nil {
		return v, err
	}
	symlinks := map[string]string{} // path of a link → directory with its target
	for _, e := range entries {
		symlinks[serversDir+e.Name()] = base.ID
	}
	for file := range files {
		kind, rest, _ := strings.Cut(file, "/")
		dir, _, _ := strings.Cut(rest, "/")
		symlinks[kind+"/"+dir] = overlayDir
	}
	return v, createDir(s.opts.Dir, v.Dir, func(tmp string) error {
		var err error
		for _, name := range slices.Sorted(maps.Keys(symlinks)) {
			link := filepath.Join(tmp, filepath.FromSlash(name))
			err = errors.Join(err, os.MkdirAll(filepath.Dir(link), 0o755),
				os.Symlink(filepath.Join("..", "..", symlinks[name], filepath.FromSlash(name)), link))
		}
		return err
	})
}

// fetchOverlay returns an overlay that a worker uploaded for the tenant.
func (s *VersionStore) fetchOverlay(ctx context.Context, tenant, id string) (*Overlay, error) {
	if s.opts.Objects == nil || !versionID.MatchString(id) {
		return nil, fmt.Errorf("fetch registered tools %s of tenant %s: %w", printableName(id), tenant, fs.ErrNotExist)
	}
	archive, err := s.opts.Objects.Get(ctx, overlayKey(tenant, id), objects.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("fetch registered tools %s of tenant %s: %w", id, tenant, err)
	}
	files, err := Version{ID: id, Archive: archive.Data}.files()
	if err != nil {
		return nil, err
	}
	return unarchive(files)
}
