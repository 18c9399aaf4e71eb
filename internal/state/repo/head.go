package repo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Version is a version of a workspace, with the HEAD that refers to it.
type Version struct {
	Head     format.Head
	ETag     string // ETag of HEAD; empty if there is no HEAD
	Set      *format.EntrySet
	Manifest *format.Manifest // nil if Head.Manifest is nil
	ReadAt   time.Time        // when HEAD was read or swapped
}

// NoChange returns the outcome of a commit that would not have changed v.
func (v *Version) NoChange() Commit {
	return Commit{Generation: v.Head.Generation, ID: v.Head.Commit, Time: v.Head.Time, NoChange: true}
}

// ReadHead returns HEAD and its ETag. A workspace without HEAD has generation 0 and an empty ETag. If etag is not
// empty and still HEAD's ETag, ReadHead returns objects.ErrNotModified.
func (r *Repo) ReadHead(ctx context.Context, ref format.Ref, etag string) (format.Head, string, error) {
	obj, err := r.Bucket.Get(ctx, ref.HeadKey(), objects.GetOptions{IfNoneMatch: etag})
	if errors.Is(err, objects.ErrNotFound) {
		r.carrier.forget(ref)
		return format.Head{Born: 1}, "", nil
	}
	if err != nil {
		return format.Head{}, "", err
	}
	h, err := r.DecodeHead(ref, obj.Data)
	if err != nil {
		return format.Head{}, "", fmt.Errorf("%s: %w", ref.HeadKey(), err)
	}
	return h, obj.ETag, nil
}

// FindHead returns HEAD and its ETag, as ReadHead does, and objects.ErrCorrupt if HEAD is lost, as far as
// that can be detected (see FloorWithoutHead). Without a HEAD it sometimes sends two more requests (see checkAbsent).
func (r *Repo) FindHead(ctx context.Context, ref format.Ref) (format.Head, string, error) {
	h, etag, err := r.ReadHead(ctx, ref, "")
	if err == nil && etag == "" {
		err = r.checkAbsent(ctx, ref)
	}
	return h, etag, err
}

// DecodeHead decodes the stored bytes of HEAD. From then on, r reads the objects that HEAD carries as if they were
// stored.
func (r *Repo) DecodeHead(ref format.Ref, data []byte) (format.Head, error) {
	h, err := format.DecodeHead(ref, r.Keys(ref.Tenant), data)
	if err == nil {
		r.carrier.observe(ref, &h)
	}
	return h, err
}

// SwapHead replaces HEAD with h if its ETag is still etag, which is empty if there is no HEAD. It returns the new ETag
// and the errors of objects.Objects.CompareAndSwap.
func (r *Repo) SwapHead(ctx context.Context, ref format.Ref, etag string, h *format.Head) (string, error) {
	data, err := h.Encode(ref, r.Keys(ref.Tenant))
	if err != nil {
		return "", err
	}
	etag, err = r.Bucket.CompareAndSwap(ctx, ref.HeadKey(), etag, data)
	if err == nil {
		r.carrier.observe(ref, h)
	}
	return etag, err
}

// Current returns the newest version. If old, which may be nil, is still the newest, it returns old after one small
// request. It returns objects.ErrCorrupt if HEAD is lost.
func (r *Repo) Current(ctx context.Context, ref format.Ref, old *Version) (*Version, error) {
	etag := ""
	if old != nil {
		etag = old.ETag
	}
	h, etag, err := r.ReadHead(ctx, ref, etag)
	if errors.Is(err, objects.ErrNotModified) {
		old.ReadAt = time.Now()
		return old, nil
	}
	switch {
	case err != nil || etag != "":
	case old == nil:
		err = r.checkAbsent(ctx, ref)
	default:
		err = r.checkPurged(ctx, ref, old)
	}
	if err != nil {
		return nil, err
	}
	return r.VersionOf(ctx, ref, h, etag)
}

// VersionOf returns the version that a HEAD refers to.
func (r *Repo) VersionOf(ctx context.Context, ref format.Ref, h format.Head, etag string) (*Version, error) {
	v := &Version{Head: h, ETag: etag, Set: format.EmptySet, ReadAt: time.Now()}
	if h.Manifest == nil {
		return v, nil
	}
	l, err := r.Load(ctx, ref, *h.Manifest)
	if err != nil {
		return nil, err
	}
	v.Set, v.Manifest = l.Set, l.Manifest
	return v, nil
}

// checkPurged returns an error unless a workspace that has no HEAD any more was purged. base is an earlier version.
func (r *Repo) checkPurged(ctx context.Context, ref format.Ref, base *Version) error {
	if base == nil || base.Head.Manifest == nil {
		return nil
	}
	name := base.Head.Manifest.Name
	for _, c := range base.Head.Carried {
		if c.Manifest == "" {
			continue
		}
		m, err := r.Codec.DecodeManifest(ref, r.Keys(ref.Tenant), c.Data)
		if err != nil {
			return err
		}
		if m.Header.Parent != nil {
			name = m.Header.Parent.Name // the newest one that was stored when HEAD was read
		}
		break
	}
	_, err := r.Bucket.Get(ctx, ref.ManifestKey(name), objects.GetOptions{})
	if errors.Is(err, objects.ErrNotFound) {
		return nil // a purge deletes HEAD after everything else
	}
	if err == nil {
		err = fmt.Errorf("%s is missing, although manifest %s exists: %w", ref.HeadKey(), name, objects.ErrCorrupt)
	}
	return err
}
