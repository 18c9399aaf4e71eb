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
	o VersionStoreOptions

	mu      sync.Mutex
	base    placed              // what new tasks pin
	read    *Listing            // of Source, when base was placed
	known   map[string]*Listing // of base versions, by id
	tenants map[string]*tenantVersions
}

type placed struct {
	version string
	snap    *Listing
}

type tenantVersions struct {
	placed
	base    *Listing
	overlay *Overlay
	older   []placed // the latest last
}

// keepOverlays is how many versions with a tenant's own tools stay for that tenant's running tasks.
const keepOverlays = 32

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
	return &VersionStore{o: o, known: map[string]*Listing{}, tenants: map[string]*tenantVersions{}}, nil
}

// Dir is the directory of the versions.
func (s *VersionStore) Dir() string { return s.o.Dir }

// Current returns the tenant's catalogue as it is now: the name of a directory below Dir, complete
// and never changed again, and its tools, which are the same Listing until something changes. When
// the source cannot be read any more it goes on with what it had, and says so in the log.
func (s *VersionStore) Current(ctx context.Context, tenant string) (version string, snap *Listing, err error) {
	var overlay *Overlay
	if s.o.Overlay != nil { // which may take its time: no other tenant waits for that
		overlay = s.o.Overlay(tenant)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(ctx); err != nil {
		if s.base.snap == nil || ctx.Err() != nil {
			return "", nil, err
		}
		s.o.Log.WarnContext(ctx, "catalogue not read, the last one is used", "version", s.base.version, "error", err)
	}
	if overlay == nil {
		return s.base.version, s.base.snap, nil
	}
	t := s.tenants[tenant]
	if t == nil || t.base != s.base.snap || t.overlay != overlay {
		if t, err = s.extend(ctx, tenant, overlay); err != nil {
			return "", nil, fmt.Errorf("add the tools that tenant %s registered: %w", tenant, err)
		}
	}
	return t.version, t.snap, nil
}

// Pinned returns the tools of a version that Current returned before, here or on another host, and
// sees to its directory. The error is fs.ErrNotExist when it is not to be had any more.
func (s *VersionStore) Pinned(ctx context.Context, tenant, version string) (*Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[tenant]; t != nil {
		for _, p := range append(slices.Clone(t.older), t.placed) {
			if p.version == version {
				return p.snap, nil
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
	snap, used, err := Extend(base, &Overlay{Files: files})
	if err == nil {
		err = s.link(baseID, overlayID, used, base)
	}
	if err != nil {
		return nil, fmt.Errorf("catalogue %s: %w", version, err)
	}
	s.keep(ctx, tenant, &tenantVersions{placed: placed{version, snap}})
	return snap, nil
}

func (s *VersionStore) refresh(ctx context.Context) error {
	snap, err := s.o.Source.Read(ctx)
	if err != nil || snap == s.read && s.read != nil {
		return err
	}
	v, snap, err := s.o.Source.Unpack(ctx, s.o.Dir)
	if err != nil {
		return err
	}
	for _, b := range snap.Broken {
		s.o.Log.WarnContext(ctx, "file of the catalogue is no tool", "path", b.Path, "line", b.Line, "reason", b.Message)
	}
	s.o.Log.InfoContext(ctx, "catalogue", "version", v.ID, "tools", len(snap.Tools), "broken", len(snap.Broken))
	s.store(ctx, versionKey(v.ID), v)
	s.base, s.read, s.known[v.ID] = placed{v.ID, snap}, snap, snap
	return nil
}

// store keeps a version for other hosts. Without it a task that runs again elsewhere takes the
// catalogue as it is then.
func (s *VersionStore) store(ctx context.Context, key string, v Version) {
	if s.o.Objects == nil || v.Archive == nil {
		return
	}
	if err := s.o.Objects.Put(ctx, key, v.Archive, objects.Sum(v.Archive)); err != nil {
		s.o.Log.WarnContext(ctx, "version of the catalogue not kept for other hosts", "version", v.ID, "error", err)
	}
}

// extend makes the tenant's version of the base and its overlay.
func (s *VersionStore) extend(ctx context.Context, tenant string, o *Overlay) (*tenantVersions, error) {
	snap, used, err := Extend(s.base.snap, o)
	if err != nil {
		return nil, err
	}
	t := &tenantVersions{placed: placed{s.base.version, snap}, base: s.base.snap, overlay: o}
	if len(used) > 0 {
		v, err := packOverlay(used)
		if err != nil {
			return nil, err
		}
		if err := s.link(s.base.version, v.ID, used, s.base.snap); err != nil {
			return nil, err
		}
		s.store(ctx, overlayKey(tenant, v.ID), v)
		t.version += "." + v.ID
	}
	for _, b := range snap.Broken {
		if !slices.Contains(s.base.snap.Broken, b) {
			s.o.Log.WarnContext(ctx, "registered tool is none", "tenant", tenant, "tool", b.Path, "reason", b.Message)
		}
	}
	s.o.Log.InfoContext(ctx, "catalogue of a tenant", "tenant", tenant, "version", t.version, "tools", len(snap.Tools))
	s.keep(ctx, tenant, t)
	return t, nil
}

// keep makes t the tenant's current version, and lets go of old ones.
func (s *VersionStore) keep(ctx context.Context, tenant string, t *tenantVersions) {
	if old := s.tenants[tenant]; old != nil {
		t.older = slices.DeleteFunc(append(old.older, old.placed), func(p placed) bool { return p.version == t.version })
	}
	s.tenants[tenant] = t
	for len(t.older) > keepOverlays {
		gone := t.older[0].version
		t.older = slices.Delete(t.older, 0, 1)
		base, overlay, extended := strings.Cut(gone, ".")
		if !extended || s.used(gone) {
			continue
		}
		if err := errors.Join(os.RemoveAll(s.path(gone)), s.removeOverlay(overlay)); err != nil {
			s.o.Log.WarnContext(ctx, "old version of a tenant's catalogue stays", "version", base+"."+overlay, "error", err)
		}
	}
}

func (s *VersionStore) removeOverlay(id string) error {
	if s.used("." + id) {
		return nil
	}
	return os.RemoveAll(s.path(id))
}

// used reports whether a tenant's version ends so.
func (s *VersionStore) used(suffix string) bool {
	for _, t := range s.tenants {
		for _, p := range append(slices.Clone(t.older), t.placed) {
			if strings.HasSuffix(p.version, suffix) {
				return true
			}
		}
	}
	return false
}

func (s *VersionStore) path(name string) string { return filepath.Join(s.o.Dir, name) }

// link makes dir/<overlay> of the files, and dir/<base>.<overlay> of links to it and the base.
func (s *VersionStore) link(base, overlay string, files map[string][]byte, snap *Listing) error {
	target := s.path(base + "." + overlay)
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	if _, err := os.Stat(s.path(overlay)); err != nil {
		if err := writeTree(s.o.Dir, overlay, files); err != nil {
			return err
		}
	}
	links := map[string]string{"__init__.py": base}
	for _, t := range snap.Tools {
		links[t.Package()] = base
	}
	for name := range files {
		dir, _, _ := strings.Cut(name, "/")
		links[dir] = overlay
	}
	tmp, err := os.MkdirTemp(s.o.Dir, ".new-*")
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
	if snap := s.known[id]; snap != nil {
		return snap, nil
	}
	if s.o.Objects == nil {
		return nil, fmt.Errorf("catalogue %s: %w", printableName(id), fs.ErrNotExist)
	}
	if _, err := Fetch(ctx, s.o.Objects, id, s.o.Dir); err != nil {
		return nil, err
	}
	snap, err := OpenCatalogue(filepath.Join(s.path(id), "servers"), Options{}).Read(ctx)
	if err != nil {
		return nil, err
	}
	s.known[id] = snap
	return snap, nil
}

// fetchOverlay returns the files of an overlay of the tenant's.
func (s *VersionStore) fetchOverlay(ctx context.Context, tenant, id string) (map[string][]byte, error) {
	if s.o.Objects == nil || !versionID.MatchString(id) {
		return nil, fmt.Errorf("tools %s of tenant %s: %w", printableName(id), tenant, fs.ErrNotExist)
	}
	archive, err := s.o.Objects.Get(ctx, overlayKey(tenant, id), objects.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("fetch the tools that tenant %s registered: %w", tenant, err)
	}
	return Version{ID: id, Archive: archive.Data}.files()
}
