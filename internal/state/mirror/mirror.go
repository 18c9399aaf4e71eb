package mirror

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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
	// Lease is how long an update excludes others without renewing its lease. The default is 1 min.
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
	Generation int64    `json:"generation"` // generation of the mirror
	Put        int      `json:"put"`        // number of files written
	Removed    int      `json:"removed"`    // number of files removed
	Skipped    []string `json:"skipped"`    // the first few paths that are too long to be object names
}

const (
	markFile     = "mirror.json"
	defaultLease = time.Minute
	pollInterval = time.Second
	parallelPuts = 16  // files that are written at a time
	maxTouched   = 16  // generations; above this, the whole mirror is compared
	maxSkipped   = 10  // paths in the result
	maxName      = 250 // bytes of one component of an object's name
	maxMirrorKey = 900 // bytes of an object's name, without the mirror's prefix
)

// mark is the content of mirror.json.
type mark struct {
	Generation int64     `json:"generation"`
	Commit     string    `json:"commit"`
	Time       time.Time `json:"time"`
	Files      int       `json:"files"`
	Skipped    []string  `json:"skipped,omitempty"` // the first few paths that are too long to be object names
	Touched    []int64   `json:"touched,omitempty"` // other generations to which some files may belong
	By         string    `json:"by,omitempty"`      // random id of the update that is changing the mirror
	Until      time.Time `json:"until,omitzero"`    // end of that update's lease
}

func markKey(ref format.Ref) string { return ref.Tenant + "/" + ref.Workspace + "/" + markFile }

func filesPrefix(ref format.Ref) string { return ref.Tenant + "/" + ref.Workspace + "/files/" }

// ErrNotConfigured is returned by Update of a nil Mirror.
var ErrNotConfigured = errors.New("no mirror is configured")

// Mirror is the mirror of all workspaces of a Repo. Update of a nil Mirror returns ErrNotConfigured, and its other
// methods do nothing.
type Mirror struct {
	repo       *repo.Repo
	target     Target
	lease      time.Duration
	background *background
}

// Follow returns r's mirror at target. Until Close, every commit of r starts an update in the background. Call Follow
// before r is used.
func Follow(r *repo.Repo, target Target, o Options) *Mirror {
	m := &Mirror{repo: r, target: target, lease: cmp.Or(o.Lease, defaultLease)}
	m.background = newBackground(m)
	r.Subscribe(m.background.notify)
	return m
}

// Update brings a workspace's mirror up to date. It waits while another call, perhaps of another process, does so. It
// may be interrupted at any time and called again.
func (m *Mirror) Update(ctx context.Context, ref format.Ref) (Result, error) {
	if m == nil {
		return Result{}, ErrNotConfigured
	}
	if err := ref.Check(); err != nil {
		return Result{}, err
	}
	u := &update{
		repo: m.repo, ref: ref, target: m.target, lease: m.lease,
		retrying: objects.WithRetry(m.target, m.repo.Options.Retry), id: format.NewCommitID(),
	}
	if err := u.run(ctx); err != nil {
		return u.out, fmt.Errorf("mirror %s: %w", ref, err)
	}
	return u.out, nil
}

// update is one call of Update.
type update struct {
	repo     *repo.Repo
	target   Target
	ref      format.Ref
	retrying objects.Objects // target, with retries
	lease    time.Duration
	id       string
	out      Result

	mark    mark // as read or written last
	etag    string
	renewed time.Time // when the lease was extended last
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
		if err := u.checkLost(ctx, v); err != nil {
			return err
		}
		h := &v.Head
		if u.etag != "" && len(u.mark.Touched) == 0 && u.mark.Generation == h.Generation && u.mark.Commit == h.Commit {
			u.out.Generation, u.out.Skipped = u.mark.Generation, u.mark.Skipped
			return nil
		}
		// Allow half a lease for the difference between clocks.
		if u.mark.By != "" && u.mark.By != u.id && time.Now().Before(u.mark.Until.Add(u.lease/2)) {
			if err := clock.Sleep(ctx, min(pollInterval, u.lease)); err != nil {
				return err
			}
			continue
		}
		switch err := u.makeEqual(ctx, v); {
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

// checkLost returns objects.ErrCorrupt if the mirror has a later version than v, which is the newest, and the workspace
// was not purged since. The mirror may be all that is left of the workspace.
func (u *update) checkLost(ctx context.Context, v *repo.Version) error {
	if u.mark.Generation <= v.Head.Generation {
		return nil
	}
	floor, _, err := u.repo.ReadFloor(ctx, u.ref.Tenant) // a purge raises it to the last generation
	if err != nil || u.mark.Generation <= floor.Generation {
		return err
	}
	return fmt.Errorf("the newest generation is %d, although the mirror has generation %d: "+
		"remove %s from the mirror to begin it anew: %w",
		v.Head.Generation, u.mark.Generation, markKey(u.ref), objects.ErrCorrupt)
}

// read reads mirror.json.
func (u *update) read(ctx context.Context) error {
	obj, err := u.retrying.Get(ctx, markKey(u.ref), objects.GetOptions{})
	if err != nil && !errors.Is(err, objects.ErrNotFound) {
		return err
	}
	u.mark, u.etag = mark{}, obj.ETag
	if err == nil && json.Unmarshal(obj.Data, &u.mark) != nil {
		u.mark = mark{} // damaged: compare the whole mirror
	}
	return nil
}

// write swaps mirror.json. It returns objects.ErrConflict if another update has changed it.
func (u *update) write(ctx context.Context, mark mark) error {
	data, err := json.MarshalIndent(mark, "", "  ")
	if err != nil {
		return err
	}
	etag, err := u.retrying.CompareAndSwap(ctx, markKey(u.ref), u.etag, append(data, '\n'))
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

// makeEqual acquires the lease and makes the mirror equal to v.
func (u *update) makeEqual(ctx context.Context, v *repo.Version) error {
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
	limit := u.lease
	if errors.Is(context.Cause(ctx), errClosed) { // the process ends; the lease expires if it cannot be released
		limit = releaseTime
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	// Release the lease. Touched still says that the update is not complete.
	if !errors.Is(err, objects.ErrConflict) {
		mark := u.mark
		mark.By, mark.Until = "", time.Time{}
		if releaseErr := u.write(after, mark); !errors.Is(releaseErr, objects.ErrConflict) {
			return err // released, or the lease will expire
		}
	}
	return errors.Join(err, u.markTouched(after, v.Head.Generation))
}

// markTouched records that some files may belong to a generation. It is called after another update has taken over,
// because late writes of this update may have replaced files that the other one wrote.
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

// touch adds a generation to Touched.
func (m *mark) touch(generation int64) {
	if m.Touched = append(slices.Clip(m.Touched), generation); len(m.Touched) > maxTouched {
		m.Generation, m.Commit, m.Touched = 0, "", m.Touched[:1] // compare the whole mirror
	}
}

// objectName returns the name of a path's object. Different paths have different names: bytes that are not printable,
// the backslash and the percent sign are written as %XX. It returns false if the name would be too long.
func objectName(path string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		if r == utf8.RuneError && n <= 1 || r == '%' || r == '\\' || !unicode.IsPrint(r) {
			for _, c := range []byte(path[i : i+n]) {
				fmt.Fprintf(&b, "%%%02X", c)
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
