package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/mutex"
	"github.com/codefleet/codefleet/internal/objects"
)

// Source provides the fleet's catalogue: from a directory (Catalogue) or from the bucket (Published).
type Source interface {
	// Read returns the current tools. It returns the same *Listing until something changes.
	Read(ctx context.Context) (*Listing, error)
	// Unpack writes the files of the current version to dir/<id>, and returns the version and its tools. A
	// version from the bucket has no Archive.
	Unpack(ctx context.Context, dir string) (Version, *Listing, error)
}

// VersionStoreOptions configures a VersionStore. Source, Dir and Log are required.
type VersionStoreOptions struct {
	Source Source
	// Dir is emptied by OpenVersionStore. It must belong to this store alone, and no box may still use it.
	Dir string
	// Overlay returns the tools that a tenant registered, and its skills; nil if it has neither. It returns the same
	// value until something changes. If the field is nil, no tenant has any.
	Overlay func(ctx context.Context, tenant string) (*Overlay, error)
	// Objects stores every version that a task may keep, so that another host can run the task again with
	// it. If it is nil, versions stay on this host.
	Objects objects.Objects
	Log     *slog.Logger
}

// VersionStore keeps the catalogue's versions on a worker, in a directory that the boxes mount. Each task
// keeps the version with which it began. It is safe for concurrent use.
//
// A version's ID is a hash of its content. The version of a tenant with registered tools has the ID
// <base>.<overlay> and is a directory of symbolic links to both. Boxes cannot list the mounted directory, and the names
// of a tenant's directories begin with a random prefix. A program therefore finds only the fleet's versions and its
// own, and never another tenant's tools, even if it knows what they contain.
type VersionStore struct {
	opts VersionStoreOptions

	mu           *mutex.Mutex        // for the fields below
	base         Installed           // the fleet's version that new tasks begin with
	lastRead     *Listing            // what Source listed when base was unpacked
	baseListings map[string]*Listing // by version ID
	tenants      map[string]*tenantVersions
	dirPrefixes  map[string]string // by tenant; see dirPrefix

	holdMu sync.Mutex
	holds  map[string]int // number of tasks that use a version, by Installed.Dir; guarded by holdMu
}

// Installed is a version in a VersionStore's directory.
type Installed struct {
	ID      string   // the same on every host
	Dir     string   // the name of its complete and immutable directory; only programs of its tenant may know it
	Listing *Listing // the same until something changes
}

// OpenVersionStore empties the directory and opens a store there.
func OpenVersionStore(o VersionStoreOptions) (*VersionStore, error) {
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("empty catalogue directory: %w", err)
	}
	// Boxes can enter the directory, but not list it. Chmod sets the mode despite the umask.
	if err := errors.Join(os.MkdirAll(o.Dir, 0o711), os.Chmod(o.Dir, 0o711)); err != nil {
		return nil, fmt.Errorf("create catalogue directory: %w", err)
	}
	return &VersionStore{
		opts: o, mu: mutex.New(), baseListings: map[string]*Listing{},
		tenants: map[string]*tenantVersions{}, dirPrefixes: map[string]string{},
		holds: map[string]int{},
	}, nil
}

// Dir returns the directory of the versions.
func (s *VersionStore) Dir() string { return s.opts.Dir }

// Current returns the tenant's current version, or the fleet's version if tenant is empty. If the source cannot be
// read, Current logs the error and returns the last version; if there is none, it returns the error. The directory
// exists until release is called: a task holds its version while its programs may import tools. release is never nil.
func (s *VersionStore) Current(ctx context.Context, tenant string) (v Installed, release func(), err error) {
	var overlay *Overlay
	if s.opts.Overlay != nil && tenant != "" { // without the lock: it may be slow, and others must not wait for it
		if overlay, err = s.opts.Overlay(ctx, tenant); err != nil {
			return v, func() {}, err
		}
	}
	return s.hold(ctx, func() (Installed, error) { return s.current(ctx, tenant, overlay) })
}

// Kept returns a version that Current returned earlier, on this or another host. The error is fs.ErrNotExist if the
// version no longer exists. The directory exists until release is called; release is never nil.
func (s *VersionStore) Kept(ctx context.Context, tenant, version string) (v Installed, release func(), err error) {
	return s.hold(ctx, func() (Installed, error) { return s.kept(ctx, tenant, version) })
}

// hold calls find under the lock, and keeps the directory of the version that it returns until release is called.
func (s *VersionStore) hold(
	ctx context.Context, find func() (Installed, error),
) (v Installed, release func(), err error) {
	if err := s.mu.Lock(ctx); err != nil {
		return v, func() {}, err
	}
	defer s.mu.Unlock()
	if v, err = find(); err != nil {
		return v, func() {}, err
	}
	s.holdMu.Lock()
	defer s.holdMu.Unlock()
	s.holds[v.Dir]++
	return v, func() {
		s.holdMu.Lock()
		defer s.holdMu.Unlock()
		if s.holds[v.Dir]--; s.holds[v.Dir] == 0 {
			delete(s.holds, v.Dir)
		}
	}, nil
}

func (s *VersionStore) held(v Installed) bool {
	s.holdMu.Lock()
	defer s.holdMu.Unlock()
	return s.holds[v.Dir] > 0
}

// current is Current for a caller that holds s.mu.
func (s *VersionStore) current(ctx context.Context, tenant string, overlay *Overlay) (v Installed, err error) {
	if err := s.refresh(ctx); err != nil {
		if s.base.Listing == nil || ctx.Err() != nil {
			return v, err
		}
		s.opts.Log.WarnContext(ctx, "read of catalogue failed; last version kept", "version", s.base.ID, "error", err)
	}
	if overlay == nil {
		return s.base, nil
	}
	t := s.tenants[tenant]
	if t == nil || t.base != s.base.Listing || t.overlay != overlay {
		if t, err = s.extend(ctx, tenant, overlay); err != nil {
			return v, fmt.Errorf("add the registered tools and skills of tenant %s: %w", tenant, err)
		}
	}
	return t.Installed, nil
}

// kept is Kept for a caller that holds s.mu.
func (s *VersionStore) kept(ctx context.Context, tenant, version string) (v Installed, err error) {
	if t := s.tenants[tenant]; t != nil {
		for _, v := range t.all() {
			if v.ID == version {
				return v, nil
			}
		}
	}
	baseID, overlayID, extended := strings.Cut(version, ".")
	base, err := s.fetchBase(ctx, baseID)
	if err != nil || !extended {
		return Installed{ID: baseID, Dir: baseID, Listing: base}, err
	}
	overlay, err := s.fetchOverlay(ctx, tenant, overlayID)
	if err != nil {
		return v, err
	}
	listing, used, err := Extend(base, overlay)
	if err == nil {
		v, err = s.symlinkOverlay(tenant, Installed{ID: baseID, Listing: base}, overlayID, used)
	}
	if err != nil {
		return v, fmt.Errorf("rebuild catalogue %s: %w", version, err)
	}
	v.Listing = listing
	s.setCurrent(ctx, tenant, &tenantVersions{Installed: v}) // without a base, so the next Current extends it again
	return v, nil
}

// refresh unpacks the source's current version and makes it the base, if the source has a new one.
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
		s.opts.Log.WarnContext(ctx, "skipped file that is not a tool",
			"path", b.Path, "line", b.Line, "reason", b.Message)
	}
	s.opts.Log.InfoContext(ctx, "catalogue loaded",
		"version", v.ID, "tools", len(listing.Tools), "broken", len(listing.Broken))
	s.upload(ctx, versionKey(v.ID), v)
	s.base, s.lastRead, s.baseListings[v.ID] = Installed{ID: v.ID, Dir: v.ID, Listing: listing}, listing, listing
	return nil
}

// upload stores a version for other hosts. If it fails, a task that is retried on another host gets the
// current version there.
func (s *VersionStore) upload(ctx context.Context, key string, v Version) {
	if s.opts.Objects == nil || v.Archive == nil {
		return
	}
	if err := s.opts.Objects.Put(ctx, key, v.Archive, objects.Sum(v.Archive)); err != nil {
		s.opts.Log.WarnContext(ctx, "upload of catalogue version failed", "version", v.ID, "error", err)
	}
}

// fetchBase returns the tools of a version of the fleet's catalogue, and ensures that its directory exists.
func (s *VersionStore) fetchBase(ctx context.Context, id string) (*Listing, error) {
	if listing := s.baseListings[id]; listing != nil {
		return listing, nil
	}
	if s.opts.Objects == nil {
		return nil, fmt.Errorf("fetch catalogue %s: %w", printableName(id), fs.ErrNotExist)
	}
	if err := fetchTo(ctx, s.opts.Objects, id, s.opts.Dir); err != nil {
		return nil, err
	}
	listing, err := OpenCatalogue(filepath.Join(s.path(id), "servers"), Options{Check: packed}).Read(ctx)
	if err != nil {
		return nil, err
	}
	s.baseListings[id] = listing
	return listing, nil
}

func (s *VersionStore) path(name string) string { return filepath.Join(s.opts.Dir, name) }
