package state

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

const (
	headFormat   = 1
	maxHead      = 8 << 10 // bytes; conditional PUTs must stay small
	headRecent   = 64      // task ids kept at least
	recentWindow = 10 * time.Minute
	maxTaskID    = 56 // so that headRecent of the longest fit
	clockSkew    = 2 * time.Minute
)

// head is the only mutable object of a workspace.
type head struct {
	Format     int       `json:"format"`
	Generation int64     `json:"generation"`
	Commit     string    `json:"commit"` // random: every version has another ETag
	Manifest   *link     `json:"manifest,omitempty"`
	Time       time.Time `json:"time"`
	Deleted    bool      `json:"deleted,omitempty"` // a tombstone: no manifest
	Purge      time.Time `json:"purge,omitzero"`    // of a tombstone: when it was announced that it goes
	Born       int64     `json:"born"`              // first generation after creation or deletion
	Files      int       `json:"files"`
	Bytes      int64     `json:"bytes"`
	Recent     []recent  `json:"recent,omitempty"` // newest last
	// Recent is complete for generations above Floor, which was committed at FloorTime.
	Floor     int64     `json:"floor,omitempty"`
	FloorTime time.Time `json:"floor_time,omitzero"`

	key string // that it was encrypted with
}

// recent is a task that has committed lately.
type recent struct {
	Task       string `json:"t"`
	Generation int64  `json:"g"`
	Name       string `json:"m"` // digits of the manifest's name after the generation
	Unix       int64  `json:"u"`
}

func (r recent) manifest() string { return manifestName(r.Generation, r.Name) }

// version is a head as read, with its tree.
type version struct {
	head head
	etag string // empty: there is no HEAD yet
	snap *snapshot
	man  *manifest // of head.Manifest; nil when there is none
	size int64     // stored bytes of that manifest
	at   time.Time // when it was read
}

func (v *version) public() Version {
	return Version{v.head.Generation, v.head.Commit, v.head.Time, v.head.Files, v.head.Bytes}
}

// Keys.

func (r Ref) key(rest string) string      { return r.Tenant + "/w/" + r.Workspace + "/" + rest }
func (r Ref) headKey() string             { return r.key("HEAD") }
func (r Ref) headThing() string           { return "HEAD of " + r.String() } // what lock is told
func (r Ref) pinsThing() string           { return "pins of " + r.String() }
func (r Ref) manifestThing() string       { return "manifest of " + r.String() }
func (r Ref) manifestKey(n string) string { return r.key("m/" + n) }
func packKey(tenant string, id objects.Digest) string {
	hex := id.String()
	return tenant + "/p/" + hex[:2] + "/" + hex
}

func manifestName(generation int64, digits string) string {
	return fmt.Sprintf("%012d-%s", generation, digits)
}

func manifestDigits(d objects.Digest) string { return d.String()[:16] }

func newCommitID() string { return rand.Text() }

// readHead returns HEAD. A workspace without one has generation 0. With an
// etag it returns ErrNotModified when that is still current.
func (s *Store) readHead(ctx context.Context, ref Ref, etag string) (head, string, error) {
	obj, err := s.objects.Get(ctx, ref.headKey(), objects.GetOptions{IfNoneMatch: etag})
	if errors.Is(err, ErrNotFound) {
		return head{Format: headFormat, Born: 1}, "", nil
	}
	if err != nil {
		return head{}, "", err
	}
	h, err := s.openHead(ref, obj.Data)
	if err != nil {
		return head{}, "", fmt.Errorf("%s: %w", ref.headKey(), err)
	}
	return h, obj.ETag, nil
}

func (s *Store) openHead(ref Ref, data []byte) (head, error) {
	plain, key, err := s.keys(ref.Tenant).unlock(ref.headThing(), data)
	if err != nil {
		return head{}, err
	}
	h, err := decodeHead(plain)
	h.key = key
	return h, err
}

// swapHead writes HEAD over the version that etag names.
func (s *Store) swapHead(ctx context.Context, ref Ref, etag string, h *head) (string, error) {
	keys, room := s.keys(ref.Tenant), maxHead
	if keys.current != nil {
		room -= lockOverhead
	}
	data, err := h.encode(room)
	if err != nil {
		return "", err
	}
	return s.objects.CompareAndSwap(ctx, ref.headKey(), etag, keys.lock(ref.headThing(), data))
}

func decodeHead(data []byte) (head, error) {
	var h head
	body, ok := unseal(data)
	if len(data) > maxHead || !ok {
		return h, fmt.Errorf("%w: %d bytes with another digest", objects.ErrCorrupt, len(data))
	}
	if err := json.Unmarshal(body, &h); err != nil {
		return h, fmt.Errorf("%w: %w", objects.ErrCorrupt, err)
	}
	if h.Format != headFormat || h.Generation < 1 || h.Deleted == (h.Manifest != nil) {
		return h, fmt.Errorf("%w: format %d, generation %d", objects.ErrCorrupt, h.Format, h.Generation)
	}
	return h, nil
}

// seal puts the digest of a mutable object on a line below it: unlike the others
// its name does not say what it holds.
func seal(body []byte) []byte {
	return fmt.Appendf(body, "\n%s\n", objects.Sum(body))
}

func unseal(data []byte) (body []byte, ok bool) {
	i := len(data) - 2*len(objects.Digest{}) - 2
	if i < 0 {
		return nil, false
	}
	return data[:i], bytes.Equal(seal(bytes.Clone(data[:i])), data)
}

// encode drops the oldest task ids that are neither among the last headRecent
// nor in the window, or do not fit into room bytes.
func (h *head) encode(room int) ([]byte, error) {
	h.Format = headFormat
	for len(h.Recent) > headRecent && time.Unix(h.Recent[0].Unix, 0).Before(h.Time.Add(-recentWindow)) {
		h.dropOldest()
	}
	for {
		data, err := json.Marshal(h)
		if err != nil {
			return nil, err
		}
		if data = seal(data); len(data) <= room {
			return data, nil
		}
		h.dropOldest()
	}
}

func (h *head) dropOldest() {
	h.Floor, h.FloorTime = h.Recent[0].Generation, time.Unix(h.Recent[0].Unix, 0).UTC()
	h.Recent = h.Recent[1:]
}
