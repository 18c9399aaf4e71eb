package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
)

// Source is where the fleet's catalogue comes from: a directory (Catalogue) or the bucket (Published).
type Source interface {
	// Read returns the tools as they are now: the same Listing until something changes.
	Read(ctx context.Context) (*Listing, error)
	// Place makes what Read returns a directory dir/<id>. The version has no archive when it came
	// from the bucket.
	Unpack(ctx context.Context, dir string) (Version, *Listing, error)
}

// ShelfOptions are those of a Shelf. Source, Dir and Log are required.
type VersionStoreOptions struct {
	Source Source
	// Dir is emptied, nobody else may use it, and no box of an earlier process may still need it.
	Dir string
	// Overlay is what a tenant has beside the fleet's catalogue; nil: nothing.
	Overlay func(tenant string) *Overlay
	// Objects is where versions are kept that a task pins, so that another host can run it again with
	// the same; nil: they are on this host only.
	Objects objects.Objects
	Log     *slog.Logger
}

// Shelf keeps the catalogue's versions of one worker below a directory that its boxes see: a task
// runs with the version that it began with, whatever changes meanwhile. It is safe for concurrent use.
//
// A version is named by its content. That of a tenant with tools of its own is <base>.<overlay>: a
// directory of links to both. Boxes cannot list the directory, so a program knows no version but its
// own: what a tenant registers is not for others.
type VersionStore struct {
	opts VersionStoreOptions

	mu      sync.Mutex
	base    storedVersion              // what new tasks pin
	lastRead    *Listing            // of Source, when base was placed
	baseListings   map[string]*Listing // of base versions, by id
	tenants map[string]*tenantVersions
}

type storedVersion struct {
	id string
	listing    *Listing
}

type tenantVersions struct {
	storedVersion
	base    *Listing
	overlay *Overlay
	older   []storedVersion // the latest last
}

// keepOverlays is how many versions with a tenant's own tools stay for that tenant's running tasks.
const maxOldVersions = 32

// OpenShelf empties the directory and returns a shelf there.
func OpenVersionStore(o VersionStoreOptions) (*VersionStore, error) {
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("empty the catalogue's versions: %w", err)
	}
	err := os.MkdirAll(o.Dir, 0o711)
	if err == nil {
		err = os.Chmod(o.Dir, 0o711) // whatever the umask: boxes enter it, and do not list it
	}
	if err != nil {
		return nil, fmt.Errorf("make the catalogue's versions: %w", err)
	}
	return &VersionStore{opts: o, baseListings: map[string]*Listing{}, tenants: map[string]*tenantVersions{}}, nil
}

// Dir is the directory of the versions.
func (s *VersionStore) Dir() string { return s.opts.Dir }

// Current returns the tenant's catalogue as it is now: the name of a directory below Dir, complete
// and never changed again, and its tools, which are the same Listing until something changes. When
// the source cannot be read any more it goes on with what it had, and says so in the log.
func (s *VersionStore) Current(ctx context.Context, tenant string) (version string, listing *Listing, err error) {
	var overlay *Overlay
	if s.opts.Overlay != nil { // which may take its time: no other tenant waits for that
		overlay = s.opts.Overlay(tenant)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(ctx); err != nil {
		if s.base.listing == nil || ctx.Err() != nil {
			return "", nil, err
		}
		s.opts.Log.WarnContext(ctx, "catalogue not read, the last one is used", "version", s.base.id, "error", err)
	}
	if overlay == nil {
		return s.base.id, s.base.listing, nil
	}
	t := s.tenants[tenant]
	if t == nil || t.base != s.base.listing || t.overlay != overlay {
		if t, err = s.extend(ctx, tenant, overlay); err != nil {
			return "", nil, fmt.Errorf("add the tools that tenant %s registered: %w", tenant, err)
		}
	}
	return t.id, t.listing, nil
}

// Pinned returns the tools of a version that Current returned before, here or on another host, and
// sees to its directory. The error is fs.ErrNotExist when it is not to be had any more.
func (s *VersionStore) Pinned(ctx context.Context, tenant, version string) (*Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[tenant]; t != nil {
		for _, p := range append(slices.Clone(t.older), t.storedVersion) {
			if p.id == version {
				return p.listing, nil
			}
		}
	}
	baseID, overlayID, extended := strings.Cut(version, ".")
	base, err := s.fetchBase(ctx, baseID)
	if err != nil || !extended {
		return base, err
	}
	files, err := s.fetchOverlay(ctx, tenant, overlayID)
	if err != nil {
		return nil, err
	}
	listing, used, err := Extend(base, &Overlay{Files: files})
	if err == nil {
		err = s.symlinkOverlay(baseID, overlayID, used, base)
	}
	if err != nil {
		return nil, fmt.Errorf("catalogue %s: %w", version, err)
	}
	s.setCurrent(ctx, tenant, &tenantVersions{storedVersion: storedVersion{version, listing}})
	return listing, nil
}

func (s *VersionStore) refresh(ctx context.Context) error {
	listing, err := s.opts.Source.Read(ctx)
	if err != nil || listing == s.lastRead && s.lastRead != nil {
		return err
	}
	v, listing, err := s.opts.Source.Unpack(ctx, s.opts.Dir)
	if err != nil {
		return err
	}
	for _, b := range listing.Broken {
		s.opts.Log.WarnContext(ctx, "file of the catalogue is no tool", "path", b.Path, "line", b.Line, "reason", b.Message)
	}
	s.opts.Log.InfoContext(ctx, "catalogue", "version", v.ID, "tools", len(listing.Tools), "broken", len(listing.Broken))
	s.upload(ctx, versionKey(v.ID), v)
	s.base, s.lastRead, s.baseListings[v.ID] = storedVersion{v.ID, listing}, listing, listing
	return nil
}

// store keeps a version for other hosts. Without it a task that runs again elsewhere takes the
// catalogue as it is then.
func (s *VersionStore) upload(ctx context.Context, key string, v Version) {
	if s.opts.Objects == nil || v.Archive == nil {
		return
	}
	if err := s.opts.Objects.Put(ctx, key, v.Archive, objects.Sum(v.Archive)); err != nil {
		s.opts.Log.WarnContext(ctx, "version of the catalogue not kept for other hosts", "version", v.ID, "error", err)
	}
}

// extend makes the tenant's version of the base and its overlay.
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
			s.opts.Log.WarnContext(ctx, "registered tool is none", "tenant", tenant, "tool", b.Path, "reason", b.Message)
		}
	}
	s.opts.Log.InfoContext(ctx, "catalogue of a tenant", "tenant", tenant, "version", t.id, "tools", len(listing.Tools))
	s.setCurrent(ctx, tenant, t)
	return t, nil
}

// keep makes t the tenant's current version, and lets go of old ones.
func (s *VersionStore) setCurrent(ctx context.Context, tenant string, t *tenantVersions) {
	if old := s.tenants[tenant]; old != nil {
		t.older = slices.DeleteFunc(append(old.older, old.storedVersion), func(p storedVersion) bool { return p.id == t.id })
	}
	s.tenants[tenant] = t
	for len(t.older) > maxOldVersions {
		gone := t.older[0].id
		t.older = slices.Delete(t.older, 0, 1)
		base, overlay, extended := strings.Cut(gone, ".")
		if !extended || s.inUse(gone) {
			continue
		}
		if err := errors.Join(os.RemoveAll(s.path(gone)), s.removeOverlay(overlay)); err != nil {
			s.opts.Log.WarnContext(ctx, "old version of a tenant's catalogue stays", "version", base+"."+overlay, "error", err)
		}
	}
}

func (s *VersionStore) removeOverlay(id string) error {
	if s.inUse("." + id) {
		return nil
	}
	return os.RemoveAll(s.path(id))
}

// used reports whether a tenant's version ends so.
func (s *VersionStore) inUse(suffix string) bool {
	for _, t := range s.tenants {
		for _, p := range append(slices.Clone(t.older), t.storedVersion) {
			if strings.HasSuffix(p.id, suffix) {
				return true
			}
		}
	}
	return false
}

func (s *VersionStore) path(name string) string { return filepath.Join(s.opts.Dir, name) }

// link makes dir/<overlay> of the files, and dir/<base>.<overlay> of links to it and the base.
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
	defer func() { _ = os.RemoveAll(tmp) }() // gone by then, when all went well
	err = errors.Join(os.Chmod(tmp, 0o755), os.Mkdir(filepath.Join(tmp, "servers"), 0o755))
	for name, id := range links {
		err = errors.Join(err, os.Symlink(filepath.Join("..", "..", id, "servers", name), filepath.Join(tmp, "servers", name)))
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp, target)
}

// fetchBase returns the tools of a version of the fleet's catalogue, and sees to its directory.
func (s *VersionStore) fetchBase(ctx context.Context, id string) (*Listing, error) {
	if listing := s.baseListings[id]; listing != nil {
		return listing, nil
	}
	if s.opts.Objects == nil {
		return nil, fmt.Errorf("catalogue %s: %w", printableName(id), fs.ErrNotExist)
	}
	if _, err := Fetch(ctx, s.opts.Objects, id, s.opts.Dir); err != nil {
		return nil, err
	}
	listing, err := OpenCatalogue(filepath.Join(s.path(id), "servers"), Options{}).Read(ctx)
	if err != nil {
		return nil, err
	}
	s.baseListings[id] = listing
	return listing, nil
}

// fetchOverlay returns the files of an overlay of the tenant's.
func (s *VersionStore) fetchOverlay(ctx context.Context, tenant, id string) (map[string][]byte, error) {
	if s.opts.Objects == nil || !versionID.MatchString(id) {
		return nil, fmt.Errorf("tools %s of tenant %s: %w", printableName(id), tenant, fs.ErrNotExist)
	}
	archive, err := s.opts.Objects.Get(ctx, overlayKey(tenant, id), objects.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("fetch the tools that tenant %s registered: %w", tenant, err)
	}
	return Version{ID: id, Archive: archive.Data}.files()
}
