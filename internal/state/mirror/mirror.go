package mirror

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// Options configures a Mirror.
type Options struct {
	// Lease is how long an update excludes others without renewing its lease: 1 min.
	Lease time.Duration
}

// Target is the object store of a mirror. It must honour conditional writes.
type Target interface {
	objects.Objects

	// PutFile writes size bytes over whatever is stored under key. Readers see the old or the new content.
	PutFile(ctx context.Context, key string, r io.Reader, size int64) error
}

// Result is what an update did.
type Result struct {
	Generation int64    `json:"generation"` // of the mirror
	Put        int      `json:"put"`        // files written
	Removed    int      `json:"removed"`    // files removed
	Skipped    []string `json:"skipped"`    // first paths that cannot be names of objects
}

const (
	markFile     = "mirror.json"
	defaultLease = time.Minute
	pollInterval = time.Second
	parallelPuts = 16  // files written at a time
	maxTouched   = 16  // generations; with more the whole mirror is compared
	maxSkipped   = 10  // paths in the result
	maxName      = 250 // bytes of a component of an object's name
	maxMirrorKey = 900 // bytes of an object's name, without the prefix of the mirror
)

// mark is mirror.json.
type mark struct {
	Generation int64     `json:"generation"`
	Commit     string    `json:"commit"`
	Time       time.Time `json:"time"`
	Files      int       `json:"files"`
	Skipped    []string  `json:"skipped,omitempty"` // first paths that cannot be names of objects
	Touched    []int64   `json:"touched,omitempty"` // other generations that some files may have content of
	By         string    `json:"by,omitempty"`      // random id of the update that changes the mirror
	Until      time.Time `json:"until,omitzero"`    // end of its lease
}

func markKey(ref format.Ref) string { return ref.Tenant + "/" + ref.Workspace + "/" + markFile }

func filesPrefix(ref format.Ref) string { return ref.Tenant + "/" + ref.Workspace + "/files/" }

// ErrNotConfigured is returned where there is no mirror.
var ErrNotConfigured = errors.New("there is no mirror")

// Mirror is the mirror of all workspaces of a Repo. Update of a nil Mirror returns ErrNotConfigured; its other methods
// do nothing.
type Mirror struct {
	repo       *repo.Repo
	target     Target
	lease      time.Duration
	background *background
}

// Follow returns the mirror of r at target, and has every commit of r bring it up to date in the background until
// Close. Call it before r is used.
func Follow(r *repo.Repo, target Target, o Options) *Mirror {
	m := &Mirror{repo: r, target: target, lease: cmp.Or(o.Lease, defaultLease)}
	m.background = newBackground(m)
	r.Subscribe(m.background.notify)
	return m
}

// Update brings the mirror of a workspace to the newest version, and waits for other processes that do so. It may be
// interrupted anywhere, and called again. A nil Mirror returns ErrNotConfigured.
func (m *Mirror) Update(ctx context.Context, ref format.Ref) (Result, error) {
	if m == nil {
		return Result{}, ErrNotConfigured
	}
	if err := ref.Check(); err != nil {
		return Result{}, err
	}
	u := &update{
		repo: m.repo, ref: ref, files: m.target, lease: m.lease,
		target: objects.WithRetry(m.target, m.repo.Options.Retry), id: format.NewCommitID(),
	}
	if err := u.run(ctx); err != nil {
		return u.out, fmt.Errorf("mirror %s: %w", ref, err)
	}
	return u.out, nil
}

// update is one call of Update. Its target is files with retries.
type update struct {
	repo   *repo.Repo
	files  Target
	ref    format.Ref
	target objects.Objects
	lease  time.Duration
	id     string
	out    Result

	mark    mark
	etag    string
	renewed time.Time
}

func (u *update) run(ctx context.Context) error {
	for backoff := u.repo.Options.Retry.NewBackoff(); ; {
		if err := u.read(ctx); err != nil {
			return err
		}
		v, err := u.repo.Current(ctx, u.ref, nil)
		if err != nil {
			return err
		}
		h := &v.Head
		if u.etag != "" && len(u.mark.Touched) == 0 && u.mark.Generation == h.Generation && u.mark.Commit == h.Commit {
			u.out.Generation, u.out.Skipped = u.mark.Generation, u.mark.Skipped
			return nil
		}
		// Wait half a lease more, because clocks differ.
		if u.mark.By != "" && u.mark.By != u.id && time.Now().Before(u.mark.Until.Add(u.lease/2)) {
			if err := clock.Sleep(ctx, min(pollInterval, u.lease)); err != nil {
				return err
			}
			continue
		}
		switch err := u.bringTo(ctx, v); {
		case err == nil:
		case errors.Is(err, objects.ErrConflict) || objects.Temporary(ctx, err):
			if err := backoff.Wait(ctx, err); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

func (u *update) read(ctx context.Context) error {
	obj, err := u.target.Get(ctx, markKey(u.ref), objects.GetOptions{})
	if err != nil && !errors.Is(err, objects.ErrNotFound) {
		return err
	}
	u.mark, u.etag = mark{}, obj.ETag
	if err == nil && json.Unmarshal(obj.Data, &u.mark) != nil {
		u.mark = mark{} // damaged: compare the whole mirror
	}
	return nil
}

// write swaps mirror.json. It returns objects.ErrConflict if another update changed it.
func (u *update) write(ctx context.Context, mark mark) error {
	data, err := json.MarshalIndent(mark, "", "  ")
	if err != nil {
		return err
	}
	etag, err := u.target.CompareAndSwap(ctx, markKey(u.ref), u.etag, append(data, '\n'))
	if err != nil {
		return err
	}
	u.mark, u.etag, u.renewed = mark, etag, time.Now()
	return nil
}

// renewLease extends the lease if a third of it is over.
func (u *update) renewLease(ctx context.Context) error {
	if time.Since(u.renewed) < u.lease/3 {
		return nil
	}
	mark := u.mark
	mark.Until = time.Now().Add(u.lease).UTC()
	return u.write(ctx, mark)
}

// bringTo takes the lease and makes the mirror equal to v.
func (u *update) bringTo(ctx context.Context, v *repo.Version) error {
	before := u.mark
	mark := u.mark
	mark.By, mark.Until = u.id, time.Now().Add(u.lease).UTC()
	mark.touch(v.Head.Generation)
	if err := u.write(ctx, mark); err != nil {
		return err
	}
	done, err := u.change(ctx, before, v)
	if err == nil {
		return u.write(ctx, done)
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), u.lease)
	defer cancel()
	// Release the lease; a Touched that is not empty still marks the mirror as between versions.
	if !errors.Is(err, objects.ErrConflict) {
		mark := u.mark
		mark.By, mark.Until = "", time.Time{}
		if releaseErr := u.write(after, mark); !errors.Is(releaseErr, objects.ErrConflict) { // else the lease runs out
			return err
		}
	}
	return errors.Join(err, u.markTouched(after, v.Head.Generation))
}

// markTouched records that some files may have content of a generation. Another update has taken over, and late writes
// of this one may have replaced files that it wrote.
func (u *update) markTouched(ctx context.Context, generation int64) error {
	for backoff := u.repo.Options.Retry.NewBackoff(); ; {
		if err := u.read(ctx); err != nil {
			return err
		}
		mark := u.mark
		mark.touch(generation)
		if err := u.write(ctx, mark); !errors.Is(err, objects.ErrConflict) {
			return err
		} else if err := backoff.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// touch records that some files may have content of a generation.
func (m *mark) touch(generation int64) {
	if m.Touched = append(slices.Clip(m.Touched), generation); len(m.Touched) > maxTouched {
		m.Generation, m.Commit, m.Touched = 0, "", m.Touched[:1] // compare the whole mirror
	}
}

// objectName returns the name of the object of a path; different paths have different names. Bytes that are not
// printable, the backslash and the percent sign are written as %XX. It returns false if the name would be too long.
func objectName(path string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		if r == utf8.RuneError && n <= 1 || r == '%' || r == '\\' || !unicode.IsPrint(r) {
			for _, c := range []byte(path[i : i+n]) {
				b.WriteString("%" + strings.ToUpper(strconv.FormatUint(uint64(c)|0x100, 16)[1:]))
			}
		} else {
			b.WriteString(path[i : i+n])
		}
		i += n
	}
	name := b.String()
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return "", false
		}
	}
	return name, len(name) <= maxMirrorKey
}
