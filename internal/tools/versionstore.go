package tools

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
)

// Source provides the fleet's catalogue: from a directory (Catalogue) or from the bucket (Published).
type Source interface {
	// Read returns the tools as they are now: the same *Listing until something changes.
	Read(ctx context.Context) (*Listing, error)
	// Unpack returns the current version and its tools, and writes its files to dir/<id>. A version from
	// the bucket has no Archive.
	Unpack(ctx context.Context, dir string) (Version, *Listing, error)
}

// VersionStoreOptions configures a VersionStore. Source, Dir and Log are required.
type VersionStoreOptions struct {
	Source Source
	// Dir is emptied first. It belongs to this store alone, and no running box may still use it.
	Dir string
	// Overlay returns the tools that a tenant registered; nil: tenants cannot register tools.
	Overlay func(tenant string) *Overlay
	// Objects receives every version that a task may keep, so that another host can run the task again
	// with it; nil: versions stay on this host.
	Objects objects.Objects
	Log     *slog.Logger
}

// VersionStore keeps the catalogue's versions on a worker, below a directory that its boxes mount: a
// task keeps the version with which it began. It is safe for concurrent use.
//
// The name of a version is the digest of its content. The version of a tenant with registered tools is
// <base>.<overlay>: a directory of symbolic links to both. Boxes cannot list the mounted directory, so a
// program finds only its own version, and never another tenant's tools.
type VersionStore struct {
	opts VersionStoreOptions

	mu           sync.Mutex
	base         storedVersion       // the fleet's version that new tasks begin with
	lastRead     *Listing            // of Source, when base was unpacked
	baseListings map[string]*Listing // by id
	tenants      map[string]*tenantVersions
}

type storedVersion struct {
	id      string
	listing *Listing
}

// OpenVersionStore empties the directory and opens a store there.
func OpenVersionStore(o VersionStoreOptions) (*VersionStore, error) {
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("empty the directory of catalogue versions: %w", err)
	}
	err := os.MkdirAll(o.Dir, 0o711)
	if err == nil {
		err = os.Chmod(o.Dir, 0o711) // despite the umask: boxes can enter the directory, but not list it
	}
	if err != nil {
		return nil, fmt.Errorf("make the directory of catalogue versions: %w", err)
	}
	return &VersionStore{opts: o, baseListings: map[string]*Listing{}, tenants: map[string]*tenantVersions{}}, nil
}

// Dir returns the directory of the versions.
func (s *VersionStore) Dir() string { return s.opts.Dir }

// Current returns the tenant's current version, which is the name of a complete and immutable directory
// below Dir, and its tools: the same *Listing until something changes. If the source cannot be read,
// Current logs that and returns the last version it has.
func (s *VersionStore) Current(ctx context.Context, tenant string) (version string, listing *Listing, err error) {
	var overlay *Overlay
	if s.opts.Overlay != nil { // before the lock: it may take long, and other tenants must not wait
		overlay = s.opts.Overlay(tenant)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(ctx); err != nil {
		if s.base.listing == nil || ctx.Err() != nil {
			return "", nil, err
		}
		s.opts.Log.WarnContext(ctx, "catalogue not read, keeping the last version", "version", s.base.id, "error", err)
	}
	if overlay == nil {
		return s.base.id, s.base.listing, nil
	}
	t := s.tenants[tenant]
	if t == nil || t.base != s.base.listing || t.overlay != overlay {
		if t, err = s.extend(ctx, tenant, overlay); err != nil {
			return "", nil, fmt.Errorf("add the registered tools of tenant %s: %w", tenant, err)
		}
	}
	return t.id, t.listing, nil
}

// Kept returns the tools of a version that Current returned earlier, here or on another host, and makes
// sure that its directory exists. The error is fs.ErrNotExist if the version no longer exists.
func (s *VersionStore) Kept(ctx context.Context, tenant, version string) (*Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[tenant]; t != nil {
		for _, v := range t.all() {
			if v.id == version {
				return v.listing, nil
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
		s.opts.Log.WarnContext(ctx, "file is not a tool", "path", b.Path, "line", b.Line, "reason", b.Message)
	}
	s.opts.Log.InfoContext(ctx, "catalogue loaded",
		"version", v.ID, "tools", len(listing.Tools), "broken", len(listing.Broken))
	s.upload(ctx, versionKey(v.ID), v)
	s.base, s.lastRead, s.baseListings[v.ID] = storedVersion{v.ID, listing}, listing, listing
	return nil
}

// upload stores a version for other hosts. If it fails, a task that another host runs again gets the
// current version there.
func (s *VersionStore) upload(ctx context.Context, key string, v Version) {
	if s.opts.Objects == nil || v.Archive == nil {
		return
	}
	if err := s.opts.Objects.Put(ctx, key, v.Archive, objects.Sum(v.Archive)); err != nil {
		s.opts.Log.WarnContext(ctx, "upload of catalogue version failed", "version", v.ID, "error", err)
	}
}

// fetchBase returns the tools of a version of the fleet's catalogue, and makes sure that its directory
// exists.
func (s *VersionStore) fetchBase(ctx context.Context, id string) (*Listing, error) {
	if listing := s.baseListings[id]; listing != nil {
		return listing, nil
	}
	if s.opts.Objects == nil {
		return nil, fmt.Errorf("catalogue %s: %w", printableName(id), fs.ErrNotExist)
	}
	if err := fetchTo(ctx, s.opts.Objects, id, s.opts.Dir); err != nil {
		return nil, err
	}
	listing, err := OpenCatalogue(filepath.Join(s.path(id), "servers"), Options{}).Read(ctx)
	if err != nil {
		return nil, err
	}
	s.baseListings[id] = listing
	return listing, nil
}

func (s *VersionStore) path(name string) string { return filepath.Join(s.opts.Dir, name) }
