package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/mutex"
	"github.com/codefleet/codefleet/internal/objects"
)

// Publish uploads a version and makes it the current one. It is idempotent. If two processes publish
// concurrently, the last write wins; both versions stay in the bucket.
func Publish(ctx context.Context, bucket objects.Objects, v Version) error {
	if err := bucket.Put(ctx, versionKey(v.ID), v.Archive, objects.Sum(v.Archive)); err != nil {
		return fmt.Errorf("publish catalogue %s: %w", v.ID, err)
	}
	return publishCurrent(ctx, bucket, v.ID)
}

// Republish makes an earlier published version the current one again, and returns its tools. The error is
// fs.ErrNotExist if the bucket does not have the version.
func Republish(ctx context.Context, bucket objects.Objects, id string) (*Listing, error) {
	if !versionID.MatchString(id) {
		return nil, fmt.Errorf("publish catalogue: invalid version %q: %w", printableName(id), fs.ErrNotExist)
	}
	_, files, err := fetchVersion(ctx, bucket, id)
	if err != nil {
		return nil, err
	}
	if err := publishCurrent(ctx, bucket, id); err != nil {
		return nil, err
	}
	return listFiles(cutPrefix(serversDir, files))
}

func publishCurrent(ctx context.Context, bucket objects.Objects, id string) error {
	if err := objects.Replace(ctx, bucket, keyCurrent, []byte(id)); err != nil {
		return fmt.Errorf("make catalogue %s the current one: %w", id, err)
	}
	return nil
}

// Current returns the id of the published version. The error is fs.ErrNotExist if no version was
// published.
func Current(ctx context.Context, bucket objects.Objects) (string, error) {
	current, err := bucket.Get(ctx, keyCurrent, objects.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read current catalogue version: %w", err)
	}
	id := strings.TrimSpace(string(current.Data))
	if !versionID.MatchString(id) {
		return "", fmt.Errorf("read current catalogue version: invalid version %q", printableName(id))
	}
	return id, nil
}

// fetchVersion returns a version from the bucket and its verified files, keyed by path relative to its directory.
// The error is fs.ErrNotExist if the bucket does not have the version.
func fetchVersion(ctx context.Context, bucket objects.Objects, id string) (Version, map[string][]byte, error) {
	if !versionID.MatchString(id) {
		return Version{}, nil, fmt.Errorf("fetch catalogue: invalid version %q", printableName(id))
	}
	v := Version{ID: id}
	archive, err := bucket.Get(ctx, versionKey(id), objects.GetOptions{})
	if err != nil {
		return v, nil, fmt.Errorf("fetch catalogue %s: %w", id, err)
	}
	v.Archive = archive.Data
	files, err := v.files()
	if err != nil {
		return v, nil, fmt.Errorf("fetch catalogue %s: %w", id, err)
	}
	return v, files, nil
}

// fetchTo writes a version from the bucket to dir/<id>, atomically, unless dir/<id> exists.
func fetchTo(ctx context.Context, bucket objects.Objects, id, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, id)); err == nil && versionID.MatchString(id) {
		return nil
	}
	_, files, err := fetchVersion(ctx, bucket, id)
	if err == nil {
		err = writeTree(dir, id, files)
	}
	return err
}

// Published is a Source that reads the published catalogue from the bucket. It is safe for concurrent use.
type Published struct {
	bucket objects.Objects

	mu        *mutex.Mutex // for the fields below
	checkedAt time.Time
	err       error // from the last check
	version   Version
	listing   *Listing
}

// pollInterval is the longest time until a host sees a new version.
const pollInterval = 2 * time.Second

// OpenPublished returns the catalogue in the bucket without reading it.
func OpenPublished(bucket objects.Objects) *Published {
	return &Published{bucket: bucket, mu: mutex.New()}
}

// Read returns the published tools; its view of the bucket is at most pollInterval old. The error is fs.ErrNotExist if
// no version was ever published, but not if the current one is missing. With an error, it also returns the tools that
// it read last, or nil.
func (p *Published) Read(ctx context.Context) (*Listing, error) {
	if err := p.mu.Lock(ctx); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	err := p.refresh(ctx)
	return p.listing, err
}

func (p *Published) refresh(ctx context.Context) error {
	if time.Since(p.checkedAt) < pollInterval {
		return p.err
	}
	err := p.fetchCurrent(ctx)
	if ctx.Err() == nil { // the end of one caller's context is not an error for the others
		p.err, p.checkedAt = err, time.Now()
	}
	return err
}

func (p *Published) fetchCurrent(ctx context.Context) error {
	id, err := Current(ctx, p.bucket)
	if err != nil || id == p.version.ID {
		return err
	}
	v, files, err := fetchVersion(ctx, p.bucket, id)
	if errors.Is(err, fs.ErrNotExist) { // something is published, so callers must not continue without it
		return fmt.Errorf("the current catalogue %s is missing from the bucket: publish it again", id)
	}
	if err != nil {
		return err
	}
	listing, err := listFiles(cutPrefix(serversDir, files))
	if err != nil {
		return err
	}
	p.version, p.listing = v, listing
	return nil
}

// Unpack implements Source.
func (p *Published) Unpack(ctx context.Context, dir string) (Version, *Listing, error) {
	if err := p.mu.Lock(ctx); err != nil {
		return Version{}, nil, err
	}
	defer p.mu.Unlock()
	if err := p.refresh(ctx); err != nil && p.listing == nil {
		return Version{}, nil, err
	}
	if err := p.version.unpackOnce(dir); err != nil {
		return Version{}, nil, err
	}
	return Version{ID: p.version.ID}, p.listing, nil
}
