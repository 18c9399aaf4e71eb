package state

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
)

// A mirror has the files of each workspace's newest version as plain objects, for programs that know
// nothing of workspaces. It follows after commits, and nothing is ever read from it:
//
//	<tenant>/<ws>/files/<path>  content of a file
//	<tenant>/<ws>/mirror.json   which generation that is, and who is changing it
//
// While a generation is brought in, the mirror is between two of them, and mirror.json names those that
// paths may be of. Whoever finds it so when nobody works on it any more makes it whole.

// Mirror says where the mirror is; the zero value is none.
type Mirror struct {
	Target MirrorTarget
	Lease  time.Duration // how long who works on a workspace's mirror and is silent keeps it from others: 1 min
}

// MirrorTarget is the object store of a mirror; it honours conditional writes.
type MirrorTarget interface {
	objects.Objects

	// PutFile writes size bytes, whatever was there before; readers see the old or the new content.
	PutFile(ctx context.Context, key string, r io.Reader, size int64) error
}

// Mirrored is what a call of Mirror did.
type Mirrored struct {
	Generation int64    `json:"generation"` // that the mirror has
	Put        int      `json:"put"`        // files written
	Removed    int      `json:"removed"`    // objects removed
	Skipped    []string `json:"skipped"`    // the first paths whose names no object can have
}

// ErrNoMirror is returned by Mirror when there is none.
var ErrNoMirror = errors.New("there is no mirror")

const (
	mirrorFile   = "mirror.json"
	mirrorLease  = time.Minute
	mirrorPoll   = time.Second
	mirrorPuts   = 16  // files written at a time
	maxTouched   = 16  // generations; more are as none known
	maxSkipped   = 10  // paths named
	maxName      = 250 // bytes of a component of an object's name
	maxMirrorKey = 900 // bytes of an object's name, without the prefix of the mirror
)

// mirrorMark is mirror.json.
type mirrorMark struct {
	Generation int64     `json:"generation"`
	Commit     string    `json:"commit"`
	Time       time.Time `json:"time"`
	Files      int       `json:"files"`             // that the mirror has
	Skipped    []string  `json:"skipped,omitempty"` // the first paths that it has not: names that no object can have
	Touched    []int64   `json:"touched,omitempty"` // generations that paths may be of beside this one
	By         string    `json:"by,omitempty"`      // random: who works on it
	Until      time.Time `json:"until,omitzero"`    // and that others leave it to them
}

func mirrorKey(ref Ref) string    { return ref.Tenant + "/" + ref.Workspace + "/" + mirrorFile }
func mirrorPrefix(ref Ref) string { return ref.Tenant + "/" + ref.Workspace + "/files/" }

// Mirror brings the mirror of a workspace to the newest version, and waits for others who do so. It may be
// interrupted anywhere, and called again. Commit and all that commits call it by themselves, in the
// background; see Close.
func (s *Store) Mirror(ctx context.Context, ref Ref) (Mirrored, error) {
	if err := ref.check(); err != nil {
		return Mirrored{}, err
	}
	if s.opts.Mirror.Target == nil {
		return Mirrored{}, ErrNoMirror
	}
	m := &mirroring{store: s, ref: ref, target: objects.WithRetry(s.opts.Mirror.Target, s.opts.Retry), lease: cmp.Or(s.opts.Mirror.Lease, mirrorLease), id: newCommitID()}
	if err := m.run(ctx); err != nil {
		return m.out, fmt.Errorf("mirror %s: %w", ref, err)
	}
	return m.out, nil
}

// mirroring is one call of Mirror.
type mirroring struct {
	store  *Store
	ref    Ref
	target objects.Objects
	lease  time.Duration
	id     string
	out    Mirrored

	mark    mirrorMark
	etag    string
	renewed time.Time
}

func (m *mirroring) run(ctx context.Context) error {
	for backoff := m.store.opts.Retry.NewBackoff(); ; {
		if err := m.read(ctx); err != nil {
			return err
		}
		v, err := m.store.current(ctx, m.ref, nil)
		if err != nil {
			return err
		}
		h := &v.head
		if m.etag != "" && len(m.mark.Touched) == 0 && m.mark.Generation == h.Generation && m.mark.Commit == h.Commit {
			m.out.Generation, m.out.Skipped = m.mark.Generation, m.mark.Skipped
			return nil
		}
		if m.mark.By != "" && m.mark.By != m.id && time.Now().Before(m.mark.Until.Add(m.lease/2)) { // clocks differ
			if err := clock.Sleep(ctx, min(mirrorPoll, m.lease)); err != nil {
				return err
			}
			continue
		}
		switch err := m.bring(ctx, v); {
		case err == nil:
		case errors.Is(err, ErrConflict) || objects.Temporary(ctx, err):
			if err := backoff.Wait(ctx, err); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

func (m *mirroring) read(ctx context.Context) error {
	obj, err := m.target.Get(ctx, mirrorKey(m.ref), objects.GetOptions{})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	m.mark, m.etag = mirrorMark{}, obj.ETag
	if err == nil && json.Unmarshal(obj.Data, &m.mark) != nil {
		m.mark = mirrorMark{} // all is to be made anew
	}
	return nil
}

// write swaps mirror.json. ErrConflict: somebody else works on the mirror.
func (m *mirroring) write(ctx context.Context, mark mirrorMark) error {
	data, err := json.MarshalIndent(mark, "", "  ")
	if err != nil {
		return err
	}
	etag, err := m.target.CompareAndSwap(ctx, mirrorKey(m.ref), m.etag, append(data, '\n'))
	if err != nil {
		return err
	}
	m.mark, m.etag, m.renewed = mark, etag, time.Now()
	return nil
}

// keep says that this one is still working, now and then.
func (m *mirroring) keep(ctx context.Context) error {
	if time.Since(m.renewed) < m.lease/3 {
		return nil
	}
	mark := m.mark
	mark.Until = time.Now().Add(m.lease).UTC()
	return m.write(ctx, mark)
}

// bring takes the mirror for itself and makes it v.
func (m *mirroring) bring(ctx context.Context, v *version) error {
	before := m.mark
	mark := m.mark
	mark.By, mark.Until = m.id, time.Now().Add(m.lease).UTC()
	mark.touch(v.head.Generation)
	if err := m.write(ctx, mark); err != nil {
		return err
	}
	done, err := m.change(ctx, before, v)
	if err == nil {
		return m.write(ctx, done)
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.lease)
	defer cancel()
	if !errors.Is(err, ErrConflict) { // let go of it; it stays known to be between versions
		mark := m.mark
		mark.By, mark.Until = "", time.Time{}
		if gone := m.write(after, mark); !errors.Is(gone, ErrConflict) { // unwritten, others wait for the lease
			return err
		}
	}
	return errors.Join(err, m.admit(after, v.head.Generation))
}

// admit says that paths may be of a generation: another took the mirror over, and what was on its way may
// have come after what that one wrote.
func (m *mirroring) admit(ctx context.Context, generation int64) error {
	for backoff := m.store.opts.Retry.NewBackoff(); ; {
		if err := m.read(ctx); err != nil {
			return err
		}
		mark := m.mark
		mark.touch(generation)
		if err := m.write(ctx, mark); !errors.Is(err, ErrConflict) {
			return err
		} else if err := backoff.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// touch notes that paths may be of a generation.
func (k *mirrorMark) touch(generation int64) {
	if k.Touched = append(slices.Clip(k.Touched), generation); len(k.Touched) > maxTouched {
		k.Generation, k.Commit, k.Touched = 0, "", k.Touched[:1] // compared as a whole
	}
}

// mirrorName is the name of a file in the mirror, another one for each path. What no program can be sure to
// show or list is written as %XX, and so is the percent sign. False: no object can have the name.
func mirrorName(path string) (string, bool) {
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
