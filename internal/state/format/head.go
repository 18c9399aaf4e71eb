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

const (
	HeadFormat   = 1
	MaxHead      = 8 << 10 // bytes; conditional PUTs must stay small
	headRecent   = 64      // task ids kept at least
	recentWindow = 10 * time.Minute
	MaxTaskID    = 56 // bytes, so that headRecent of the longest fit
	ClockSkew    = 2 * time.Minute
	purgeOver    = 10 * time.Minute // after the announcement of a purge the HEAD may be written again
)

// Head is the only mutable object of a workspace.
type Head struct {
	Format     int          `json:"format"`
	Generation int64        `json:"generation"`
	Commit     string       `json:"commit"` // random: every version has another ETag
	Manifest   *ManifestRef `json:"manifest,omitempty"`
	Time       time.Time    `json:"time"`
	Deleted    bool         `json:"deleted,omitempty"` // a tombstone: no manifest
	Purge      time.Time    `json:"purge,omitzero"`    // of a tombstone: when it was announced that it goes
	Born       int64        `json:"born"`              // first generation after creation or deletion
	Files      int          `json:"files"`
	Bytes      int64        `json:"bytes"`
	Recent     []RecentTask `json:"recent,omitempty"` // newest last
	// Recent is complete for generations above Floor, which was committed at FloorTime.
	Floor     int64     `json:"floor,omitempty"`
	FloorTime time.Time `json:"floor_time,omitzero"`

	Key string `json:"-"` // id of the key that encrypts it; empty: unencrypted
}

// RecentTask is a task that has committed lately.
type RecentTask struct {
	Task       string `json:"t"`
	Generation int64  `json:"g"`
	Name       string `json:"m"` // digits of the manifest's name after the generation
	Unix       int64  `json:"u"`
}

func (r RecentTask) Manifest() string { return ManifestName(r.Generation, r.Name) }

func NewCommitID() string { return rand.Text() }

func DecodeHead(data []byte) (Head, error) {
	var h Head
	body, ok := CutDigest(data)
	if len(data) > MaxHead || !ok {
		return h, fmt.Errorf("%w: %d bytes with another digest", objects.ErrCorrupt, len(data))
	}
	if err := json.Unmarshal(body, &h); err != nil {
		return h, fmt.Errorf("%w: %w", objects.ErrCorrupt, err)
	}
	if h.Format != HeadFormat || h.Generation < 1 || h.Deleted == (h.Manifest != nil) {
		return h, fmt.Errorf("%w: format %d, generation %d", objects.ErrCorrupt, h.Format, h.Generation)
	}
	return h, nil
}

// Encode drops the oldest task ids that are neither among the last headRecent
// nor in the window, or do not fit into room bytes.
func (h *Head) Encode(room int) ([]byte, error) {
	h.Format = HeadFormat
	for len(h.Recent) > headRecent && time.Unix(h.Recent[0].Unix, 0).Before(h.Time.Add(-recentWindow)) {
		h.dropOldest()
	}
	for {
		data, err := json.Marshal(h)
		if err != nil {
			return nil, err
		}
		if data = AppendDigest(data); len(data) <= room {
			return data, nil
		}
		h.dropOldest()
	}
}

func (h *Head) dropOldest() {
	h.Floor, h.FloorTime = h.Recent[0].Generation, time.Unix(h.Recent[0].Unix, 0).UTC()
	h.Recent = h.Recent[1:]
}

// Next returns the head that follows h.
func (h *Head) Next(m Header, l ManifestRef) *Head {
	next := &Head{
		Generation: m.Generation, Commit: m.Commit, Manifest: &l, Time: m.Time, Born: h.Born,
		Recent: slices.Clone(h.Recent), Floor: h.Floor, FloorTime: h.FloorTime,
	}
	if h.Deleted {
		next.Born = m.Generation
	}
	if m.TaskID != "" {
		next.Recent = append(next.Recent, RecentTask{m.TaskID, m.Generation, l.Digits(), m.Time.Unix()})
	}
	return next
}

// Purging reports whether the HEAD is about to be deleted, and nobody may write it.
func (h *Head) Purging() bool { return !h.Purge.IsZero() && time.Since(h.Purge) < purgeOver }

// AppendDigest puts the digest of a mutable object on a line below it: unlike the others
// its name does not say what it holds.
func AppendDigest(body []byte) []byte {
	return fmt.Appendf(body, "\n%s\n", objects.Sum(body))
}

func CutDigest(data []byte) (body []byte, ok bool) {
	i := len(data) - 2*len(objects.Digest{}) - 2
	if i < 0 {
		return nil, false
	}
	return data[:i], bytes.Equal(AppendDigest(bytes.Clone(data[:i])), data)
}
