package repo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Version is a head as read, with its tree.
type Version struct {
	Head          format.Head
	ETag          string // empty: there is no HEAD yet
	Snapshot      *format.Snapshot
	Manifest      *format.Manifest // of head.Manifest; nil when there is none
	ManifestBytes int64            // stored bytes of that manifest
	ReadAt        time.Time        // when it was read
}

// ReadHead returns HEAD. A workspace without one has generation 0. With an
// etag it returns ErrNotModified when that is still current.
func (r *Repo) ReadHead(ctx context.Context, ref format.Ref, etag string) (format.Head, string, error) {
	obj, err := r.Bucket.Get(ctx, ref.HeadKey(), objects.GetOptions{IfNoneMatch: etag})
	if errors.Is(err, objects.ErrNotFound) {
		return format.Head{Format: format.HeadFormat, Born: 1}, "", nil
	}
	if err != nil {
		return format.Head{}, "", err
	}
	h, err := r.OpenHead(ref, obj.Data)
	if err != nil {
		return format.Head{}, "", fmt.Errorf("%s: %w", ref.HeadKey(), err)
	}
	return h, obj.ETag, nil
}

func (r *Repo) OpenHead(ref format.Ref, data []byte) (format.Head, error) {
	plain, key, err := r.Keys(ref.Tenant).Decrypt(ref.HeadIdentity(), data)
	if err != nil {
		return format.Head{}, err
	}
	h, err := format.DecodeHead(plain)
	h.Key = key
	return h, err
}

// SwapHead writes HEAD over the version that etag names.
func (r *Repo) SwapHead(ctx context.Context, ref format.Ref, etag string, h *format.Head) (string, error) {
	keys, room := r.Keys(ref.Tenant), format.MaxHead
	if keys.Current != nil {
		room -= format.EncryptionOverhead
	}
	data, err := h.Encode(room)
	if err != nil {
		return "", err
	}
	return r.Bucket.CompareAndSwap(ctx, ref.HeadKey(), etag, keys.Encrypt(ref.HeadIdentity(), data))
}

// Current returns the newest version. With an old version it returns that very
// one when it is still current, after one small request.
func (r *Repo) Current(ctx context.Context, ref format.Ref, old *Version) (*Version, error) {
	etag := ""
	if old != nil {
		etag = old.ETag
	}
	h, tag, err := r.ReadHead(ctx, ref, etag)
	if errors.Is(err, objects.ErrNotModified) {
		old.ReadAt = time.Now()
		return old, nil
	}
	if err == nil && tag == "" {
		err = r.checkGone(ctx, ref, old)
	}
	if err != nil {
		return nil, err
	}
	return r.VersionOf(ctx, ref, h, tag)
}

func (r *Repo) VersionOf(ctx context.Context, ref format.Ref, h format.Head, etag string) (*Version, error) {
	v := &Version{Head: h, ETag: etag, Snapshot: format.EmptySnapshot, ReadAt: time.Now()}
	if h.Manifest == nil {
		return v, nil
	}
	l, err := r.Load(ctx, ref, *h.Manifest)
	if err != nil {
		return nil, err
	}
	v.Snapshot, v.Manifest, v.ManifestBytes = l.Snapshot, l.Manifest, l.ManifestBytes
	return v, nil
}

// checkGone decides what it means that there is no HEAD where base was read: it was purged, or lost.
func (r *Repo) checkGone(ctx context.Context, ref format.Ref, base *Version) error {
	if base == nil || base.Head.Manifest == nil {
		return nil
	}
	_, err := r.Bucket.Get(ctx, ref.ManifestKey(base.Head.Manifest.Name), objects.GetOptions{})
	if errors.Is(err, objects.ErrNotFound) {
		return nil // collected, as everything is before a HEAD goes
	}
	if err == nil {
		err = fmt.Errorf("%s is gone, and its manifest %s is there: %w", ref.HeadKey(), base.Head.Manifest.Name, objects.ErrCorrupt)
	}
	return err
}
