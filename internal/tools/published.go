package tools

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// Published is the catalogue that was published last: a Source that needs no files of this host. It
// is safe for concurrent use.
type Published struct {
	bucket objects.Objects

	mu      sync.Mutex
	checkedAt   time.Time
	err     error // of the latest asking
	version Version
	listing    *Listing
}

// askEvery is how soon a host knows of a new version.
const pollInterval = 2 * time.Second

// OpenPublished returns the catalogue in the bucket; it reads nothing yet.
func OpenPublished(bucket objects.Objects) *Published { return &Published{bucket: bucket} }

// Read returns the version that was published last, as it was known two seconds ago at most. The
// error is fs.ErrNotExist when none was ever published.
func (p *Published) Read(ctx context.Context) (*Listing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listing, p.refresh(ctx)
}

func (p *Published) refresh(ctx context.Context) error {
	if time.Since(p.checkedAt) < pollInterval {
		return p.err
	}
	p.err = p.fetchCurrent(ctx)
	p.checkedAt = time.Now()
	return p.err
}

func (p *Published) fetchCurrent(ctx context.Context) error {
	id, err := Current(ctx, p.bucket)
	if err != nil || id == p.version.ID {
		return err
	}
	archive, err := p.bucket.Get(ctx, versionKey(id), objects.GetOptions{})
	if err != nil {
		return fmt.Errorf("fetch catalogue %s: %w", id, err)
	}
	v := Version{ID: id, Archive: archive.Data}
	files, err := v.files()
	if err != nil {
		return fmt.Errorf("fetch catalogue %s: %w", id, err)
	}
	listing, err := readFiles(files)
	if err != nil {
		return err
	}
	p.version, p.listing = v, listing
	return nil
}

// Place makes what Read returns a directory dir/<id>.
func (p *Published) Unpack(ctx context.Context, dir string) (Version, *Listing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refresh(ctx); err != nil && p.listing == nil {
		return Version{}, nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, p.version.ID)); err != nil {
		if err := Unpack(p.version, dir); err != nil {
			return Version{}, nil, fmt.Errorf("unpack catalogue %s: %w", p.version.ID, err)
		}
	}
	return Version{ID: p.version.ID}, p.listing, nil
}
