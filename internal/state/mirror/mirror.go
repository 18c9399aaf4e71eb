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
	Touched    []int64   `json:"touched,omitempty"` // other generations that files may be of
	By         string    `json:"by,omitempty"`      // random id of the update that changes the mirror
	Until      time.Time `json:"until,omitzero"`    // end of its lease
}

func markKey(ref format.Ref) string { return ref.Tenant + "/" + ref.Workspace + "/" + markFile }

func filesPrefix(ref format.Ref) string { return ref.Tenant + "/" + ref.Workspace + "/files/" }

// ErrNotConfigured is returned where there is no mirror.
var ErrNotConfigured = errors.New("there is no mirror")

// Mirror is the mirror of all workspaces of a Repo. Methods of a nil Mirror do nothing.
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

// update is one call of Update.
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

func (m *update) run(ctx context.Context) error {
	for backoff := m.repo.Options.Retry.NewBackoff(); ; {
		if err := m.read(ctx); err != nil {
			return err
		}
		v, err := m.repo.Current(ctx, m.ref, nil)
		if err != nil {
			return err
		}
		h := &v.Head
		if m.etag != "" && len(m.mark.Touched) == 0 && m.mark.Generation == h.Generation && m.mark.Commit == h.Commit {
			m.out.Generation, m.out.Skipped = m.mark.Generation, m.mark.Skipped
			return nil
		}
		// Wait half a lease more, because clocks differ.
		if m.mark.By != "" && m.mark.By != m.id && time.Now().Before(m.mark.Until.Add(m.lease/2)) {
			if err := clock.Sleep(ctx, min(pollInterval, m.lease)); err != nil {
				return err
			}
			continue
		}
		switch err := m.bringTo(ctx, v); {
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

func (m *update) read(ctx context.Context) error {
	obj, err := m.target.Get(ctx, markKey(m.ref), objects.GetOptions{})
	if err != nil && !errors.Is(err, objects.ErrNotFound) {
		return err
	}
	m.mark, m.etag = mark{}, obj.ETag
	if err == nil && json.Unmarshal(obj.Data, &m.mark) != nil {
		m.mark = mark{} // damaged: compare the whole mirror
	}
	return nil
}

// write swaps mirror.json. It returns objects.ErrConflict if another update changed it.
func (m *update) write(ctx context.Context, mark mark) error {
	data, err := json.MarshalIndent(mark, "", "  ")
	if err != nil {
		return err
	}
	etag, err := m.target.CompareAndSwap(ctx, markKey(m.ref), m.etag, append(data, '\n'))
	if err != nil {
		return err
	}
	m.mark, m.etag, m.renewed = mark, etag, time.Now()
	return nil
}

// renewLease extends the lease if a third of it is over.
func (m *update) renewLease(ctx context.Context) error {
	if time.Since(m.renewed) < m.lease/3 {
		return nil
	}
	mark := m.mark
	mark.Until = time.Now().Add(m.lease).UTC()
	return m.write(ctx, mark)
}

// bringTo takes the lease and makes the mirror equal to v.
func (m *update) bringTo(ctx context.Context, v *repo.Version) error {
	before := m.mark
	mark := m.mark
	mark.By, mark.Until = m.id, time.Now().Add(m.lease).UTC()
	mark.touch(v.Head.Generation)
	if err := m.write(ctx, mark); err != nil {
		return err
	}
	done, err := m.change(ctx, before, v)
	if err == nil {
		return m.write(ctx, done)
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.lease)
	defer cancel()
	// Release the lease; Touched still says that the mirror is between versions.
	if !errors.Is(err, objects.ErrConflict) {
		mark := m.mark
		mark.By, mark.Until = "", time.Time{}
		if releaseErr := m.write(after, mark); !errors.Is(releaseErr, objects.ErrConflict) { // else the lease runs out
			return err
		}
	}
	return errors.Join(err, m.markTouched(after, v.Head.Generation))
}

// markTouched records that files may be of a generation: another update took over, and late writes of this one may have
// replaced what that wrote.
func (m *update) markTouched(ctx context.Context, generation int64) error {
	for backoff := m.repo.Options.Retry.NewBackoff(); ; {
		if err := m.read(ctx); err != nil {
			return err
		}
		mark := m.mark
		mark.touch(generation)
		if err := m.write(ctx, mark); !errors.Is(err, objects.ErrConflict) {
			return err
		} else if err := backoff.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// touch records that files may be of a generation.
func (k *mark) touch(generation int64) {
	if k.Touched = append(slices.Clip(k.Touched), generation); len(k.Touched) > maxTouched {
		k.Generation, k.Commit, k.Touched = 0, "", k.Touched[:1] // compare the whole mirror
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
