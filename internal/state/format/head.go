package format

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// Limits of HEAD.
const (
	headFormat   = 1
	maxHeadText  = 8 << 10          // bytes of the JSON text and its digest, without Carried
	headRecent   = 64               // minimal number of recent tasks
	recentWindow = 10 * time.Minute // newer tasks are kept if they fit
	MaxTaskID    = 56               // bytes, so that headRecent task ids fit
	purgeWindow  = 10 * time.Minute // how long HEAD is not written after the announcement of a purge
	maxFenced    = 16               // tasks
	fenceWindow  = time.Hour        // how long a task stays fenced, unless maxFenced other tasks are fenced

	// ClockSkew is the largest permitted difference between workers' clocks.
	ClockSkew = 2 * time.Minute
)

// Head is the object that names the newest version of a workspace.
type Head struct {
	Format     int          `json:"format"`
	Generation int64        `json:"generation"`
	Commit     string       `json:"commit"` // random id, so that no two versions have the same ETag
	Manifest   *ManifestRef `json:"manifest,omitempty"`
	Time       time.Time    `json:"time"`
	Deleted    bool         `json:"deleted,omitempty"` // a tombstone, which has no manifest
	Purge      time.Time    `json:"purge,omitzero"`    // when the purge of a tombstone was announced
	Born       int64        `json:"born"`              // first generation since the creation or the last deletion
	Files      int          `json:"files"`
	Bytes      int64        `json:"bytes"`

	// Recent lists the tasks that committed the generations above Floor, newest last. FloorTime is when Floor was
	// committed.
	Recent    []RecentTask `json:"recent,omitempty"`
	Floor     int64        `json:"floor,omitempty"`
	FloorTime time.Time    `json:"floor_time,omitzero"`

	// Fenced lists tasks that must not commit, oldest first: they ended without a commit, but one of their runs may
	// still be alive. If a workspace has no commits, a tombstone of the generation Born holds them.
	Fenced []FencedTask `json:"fenced,omitempty"`

	// Carried lists the objects that the version needs and that may not be stored under their keys yet, oldest first.
	Carried []Carried `json:"-"`

	Key string `json:"-"` // id of the key that encrypts the object; empty if it is unencrypted
}

// RecentTask is a task that committed.
type RecentTask struct {
	Task       string `json:"t"`
	Generation int64  `json:"g"`
	Name       string `json:"m"` // the part of the manifest's name after the generation
	Unix       int64  `json:"u"` // time of the commit
}

// FencedTask is a task whose runs up to the number Attempt must not commit. Later runs, after a redrive, may.
type FencedTask struct {
	Task    string `json:"t"`
	Unix    int64  `json:"u"`           // since when
	Attempt int    `json:"a,omitempty"` // 0 means all runs
}

// Manifest returns the name of the commit's manifest.
func (r RecentTask) Manifest() string { return ManifestName(r.Generation, r.Name) }

// NewCommitID returns a random commit id.
func NewCommitID() string { return rand.Text() }

// DecodeHead decrypts, parses and validates the stored bytes of a workspace's HEAD.
func DecodeHead(ref Ref, keys *Keyring, data []byte) (Head, error) {
	plain, key, err := keys.decrypt(ref.headIdentity(), data)
	if err != nil {
		return Head{}, err
	}
	h, err := decodeHead(plain)
	h.Key = key
	return h, err
}

func decodeHead(data []byte) (Head, error) {
	var h Head
	body, ok := CutDigest(data)
	body, carried, carries := bytes.Cut(body, []byte("\n"))
	if len(body) > maxHeadText || len(carried) > maxCarried || !ok {
		return h, fmt.Errorf("%w: %d bytes that do not match their digest", objects.ErrCorrupt, len(data))
	}
	if err := json.Unmarshal(body, &h); err != nil {
		return h, fmt.Errorf("%w: %w", objects.ErrCorrupt, err)
	}
	want := headFormat
	if carries {
		want = headCarrying
	}
	if h.Format != want || h.Generation < 1 || h.Deleted == (h.Manifest != nil) || h.Deleted && carries ||
		len(h.Fenced) > maxFenced {
		return h, fmt.Errorf("%w: format %d, generation %d, %d fenced tasks", objects.ErrCorrupt, h.Format,
			h.Generation, len(h.Fenced))
	}
	if !carries {
		return h, nil
	}
	var err error
	if h.Carried, err = parseCarried(carried); err != nil {
		return h, fmt.Errorf("%w: %w", objects.ErrCorrupt, err)
	}
	return h, nil
}

// Encode returns the stored bytes of h, the HEAD of ref. It drops recent tasks that are neither among the last
// headRecent nor within recentWindow, and then the oldest ones until HEAD is small enough.
func (h *Head) Encode(ref Ref, keys *Keyring) ([]byte, error) {
	limit := maxHeadText
	if keys.Current != nil {
		limit -= encryptionOverhead
	}
	data, err := h.encode(limit)
	if err != nil {
		return nil, err
	}
	return keys.encrypt(ref.headIdentity(), data), nil
}

func (h *Head) encode(limit int) ([]byte, error) {
	h.Format = headFormat
	if len(h.Carried) > 0 {
		h.Format = headCarrying
	}
	for len(h.Recent) > headRecent && time.Unix(h.Recent[0].Unix, 0).Before(h.Time.Add(-recentWindow)) {
		h.dropOldest()
	}
	for {
		data, err := json.Marshal(h)
		if err != nil {
			return nil, err
		}
		if len(data)+digestLine <= limit {
			return AppendDigest(h.appendCarried(data)), nil
		}
		if len(h.Recent) == 0 { // only with fields of a hostile HEAD
			return nil, fmt.Errorf("%w: HEAD without recent tasks has %d bytes, want at most %d", objects.ErrCorrupt,
				len(data), limit-digestLine)
		}
		h.dropOldest()
	}
}

// dropOldest drops the oldest recent task, and raises Floor to its generation.
func (h *Head) dropOldest() {
	h.Floor, h.FloorTime = h.Recent[0].Generation, time.Unix(h.Recent[0].Unix, 0).UTC()
	h.Recent = h.Recent[1:]
}

// Next returns the HEAD that follows h and refers to the manifest ref, whose header is m.
func (h *Head) Next(m Header, ref ManifestRef) *Head {
	next := &Head{
		Generation: m.Generation, Commit: m.Commit, Manifest: &ref, Time: m.Time, Born: h.Born,
		Recent: slices.Clone(h.Recent), Floor: h.Floor, FloorTime: h.FloorTime, Fenced: h.fencedAt(m.Time),
	}
	if h.Deleted && !h.NeverLived() {
		next.Born = m.Generation
	}
	if m.TaskID != "" {
		next.Recent = append(next.Recent, RecentTask{m.TaskID, m.Generation, ref.Digits(), m.Time.Unix()})
	}
	return next
}

// Fence returns a HEAD of the same version as h that also fences the runs of a task up to the number attempt. It fences
// at most maxFenced tasks, and drops older ones.
func (h *Head) Fence(task string, attempt int, now time.Time) *Head {
	next := *h
	next.Fenced = append(h.fencedAt(now), FencedTask{Task: task, Unix: now.Unix(), Attempt: attempt})
	next.Fenced = next.Fenced[max(0, len(next.Fenced)-maxFenced):]
	return &next
}

// Fences reports whether the run of a task with the number attempt must not commit.
func (h *Head) Fences(task string, attempt int) bool {
	return slices.ContainsFunc(h.Fenced, func(f FencedTask) bool {
		return f.Task == task && (f.Attempt == 0 || attempt <= f.Attempt)
	})
}

// fencedAt returns the tasks that are still fenced at a time.
func (h *Head) fencedAt(now time.Time) []FencedTask {
	return slices.DeleteFunc(slices.Clone(h.Fenced), func(f FencedTask) bool {
		return time.Unix(f.Unix, 0).Before(now.Add(-fenceWindow))
	})
}

// NeverLived reports whether h is a tombstone that only holds Fenced, because the workspace has never had a commit.
func (h *Head) NeverLived() bool { return h.Deleted && h.Generation == h.Born }

// Purging reports whether a purge may be deleting HEAD. HEAD must not be written then.
func (h *Head) Purging() bool { return !h.Purge.IsZero() && time.Since(h.Purge) < purgeWindow }

// AppendDigest appends a line with body's digest. Objects that change need it, because their keys contain no digest.
func AppendDigest(body []byte) []byte {
	return fmt.Appendf(body, "\n%s\n", objects.Sum(body))
}

const digestLine = 2*len(objects.Digest{}) + 2 // bytes that AppendDigest appends

// CutDigest reverses AppendDigest. It returns false if the digest does not match.
func CutDigest(data []byte) (body []byte, ok bool) {
	i := len(data) - digestLine
	if i < 0 {
		return nil, false
	}
	return data[:i], bytes.Equal(AppendDigest(bytes.Clone(data[:i])), data)
}
