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
	Lease time.Duration // how long the updater of a workspace's mirror may be silent before another takes over: 1 min
}

// Target is the object store of a mirror; it honours conditional writes.
type Target interface {
	objects.Objects

	// PutFile writes size bytes, whatever was there before; readers see the old or the new content.
	PutFile(ctx context.Context, key string, r io.Reader, size int64) error
}

// Result is what a call of Mirror did.
type Result struct {
	Generation int64    `json:"generation"` // that the mirror has
	Put        int      `json:"put"`        // files written
	Removed    int      `json:"removed"`    // objects removed
	Skipped    []string `json:"skipped"`    // the first paths whose names no object can have
}

const (
	markFile     = "mirror.json"
	defaultLease = time.Minute
	pollInterval = time.Second
	parallelPuts = 16  // files written at a time
	maxTouched   = 16  // generations; more are as none known
	maxSkipped   = 10  // paths named
	maxName      = 250 // bytes of a component of an object's name
	maxMirrorKey = 900 // bytes of an object's name, without the prefix of the mirror
)

// mark is mirror.json.
type mark struct {
	Generation int64     `json:"generation"`
	Commit     string    `json:"commit"`
	Time       time.Time `json:"time"`
	Files      int       `json:"files"`             // that the mirror has
	Skipped    []string  `json:"skipped,omitempty"` // the first paths that it has not: names that no object can have
	Touched    []int64   `json:"touched,omitempty"` // generations that paths may be of beside this one
	By         string    `json:"by,omitempty"`      // random: who works on it
	Until      time.Time `json:"until,omitzero"`    // and that others leave it to them
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
		repo: m.repo, ref: ref, files: m.target, target: objects.WithRetry(m.target, m.repo.Options.Retry), lease: m.lease,
		id: format.NewCommitID(),
	}
	if err := u.run(ctx); err != nil {
		return u.out, fmt.Errorf("mirror %s: %w", ref, err)
	}
	return u.out, nil
}

// update is one call of Mirror.
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
		if m.mark.By != "" && m.mark.By != m.id && time.Now().Before(m.mark.Until.Add(m.lease/2)) { // clocks differ
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
		m.mark = mark{} // all is to be made anew
	}
	return nil
}

// write swaps mirror.json. objects.ErrConflict: somebody else works on the mirror.
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

// renewLease says that this one is still working, now and then.
func (m *update) renewLease(ctx context.Context) error {
	if time.Since(m.renewed) < m.lease/3 {
		return nil
	}
	mark := m.mark
	mark.Until = time.Now().Add(m.lease).UTC()
	return m.write(ctx, mark)
}

// bringTo takes the mirror for itself and makes it v.
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
	if !errors.Is(err, objects.ErrConflict) { // let go of it; it stays known to be between versions
		mark := m.mark
		mark.By, mark.Until = "", time.Time{}
		if gone := m.write(after, mark); !errors.Is(gone, objects.ErrConflict) { // unwritten, others wait for the lease
			return err
		}
	}
	return errors.Join(err, m.markTouched(after, v.Head.Generation))
}

// markTouched says that paths may be of a generation: another took the mirror over, and what was on its way may
// have come after what that one wrote.
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

// touch notes that paths may be of a generation.
func (k *mark) touch(generation int64) {
	if k.Touched = append(slices.Clip(k.Touched), generation); len(k.Touched) > maxTouched {
		k.Generation, k.Commit, k.Touched = 0, "", k.Touched[:1] // compared as a whole
	}
}

// objectName is the name of a file in the mirror, another one for each path. What no program can be sure to
// show or list is written as %XX, and so is the percent sign. False: no object can have the name.
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
