package maintenance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// location identifies a blob in a pack. Other packs may have the same content.
type location struct{ pack, blob objects.Digest }

// inspector verifies a tenant's packs.
type inspector struct {
	repo   *repo.Repo
	tenant string
	listed map[objects.Digest]objects.ObjectInfo // packs in the object store
	bad    map[objects.Digest]string             // what is wrong with damaged packs
	lost   map[location]bool                     // blobs of damaged packs that cannot be read
	read   int                                   // number of packs that were read
}

func newInspector(ctx context.Context, r *repo.Repo, tenant string) (*inspector, error) {
	i := &inspector{
		repo: r, tenant: tenant, listed: map[objects.Digest]objects.ObjectInfo{}, bad: map[objects.Digest]string{},
		lost: map[location]bool{},
	}
	for info, err := range r.Bucket.List(ctx, format.PackPrefix(tenant), "") {
		if err != nil {
			return nil, err
		}
		var id objects.Digest
		if id.UnmarshalText([]byte(info.Key[strings.LastIndexByte(info.Key, '/')+1:])) == nil {
			i.listed[id] = info
		}
	}
	return i, nil
}

// verify verifies that a pack exists and has the right size. Otherwise, or if deep is set, it reads the pack, verifies
// the wanted blobs, and calls good, which may be nil, with the content of those that can be read. It records damage in
// bad and lost.
func (i *inspector) verify(
	ctx context.Context, p *format.Pack, wants []format.Blob, deep bool, good func(format.Blob, []byte) error,
) error {
	info, ok := i.listed[p.ID]
	if ok && info.Size == p.Size && !deep {
		return nil
	}
	var data []byte
	if ok {
		obj, err := i.repo.Bucket.Get(ctx, format.PackKey(i.tenant, p.ID), objects.GetOptions{})
		if ok = !errors.Is(err, objects.ErrNotFound); ok && err != nil {
			return err
		}
		data = obj.Data
		i.read++
	}
	switch {
	case !ok:
		i.bad[p.ID] = "missing"
	case int64(len(data)) != p.Size:
		i.bad[p.ID] = fmt.Sprintf("is %d bytes, want %d", len(data), p.Size)
	case objects.Sum(data) != p.ID:
		i.bad[p.ID] = "does not match its digest"
	}
	for _, b := range wants {
		content, err := i.open(b, data)
		if errors.Is(err, format.ErrKey) {
			return err
		}
		if err != nil {
			i.lost[location{p.ID, b.ID}] = true
			if i.bad[p.ID] == "" {
				i.bad[p.ID] = err.Error()
			}
		} else if good != nil {
			if err := good(b, content); err != nil {
				return err
			}
		}
	}
	return nil
}

// open returns the verified content of a blob in the pack data.
func (i *inspector) open(b format.Blob, data []byte) ([]byte, error) {
	if b.Offset+b.Stored > int64(len(data)) {
		return nil, fmt.Errorf("blob %s: %w: beyond the end of the pack", b.ID, objects.ErrCorrupt)
	}
	return i.repo.OpenBlob(i.tenant, &b, data[b.Offset:b.Offset+b.Stored], nil)
}

// readable reports whether all blobs of e can be read.
func (i *inspector) readable(e *format.Entry) bool {
	for _, b := range e.Blobs {
		if i.lost[location{b.Pack.ID, b.ID}] {
			return false
		}
	}
	return true
}

const indexGuess = 64 << 10 // bytes; most indexes are smaller

// index returns the blobs that a pack's index lists.
func (i *inspector) index(ctx context.Context, id objects.Digest) ([]format.Blob, error) {
	p := &format.Pack{ID: id, Size: i.listed[id].Size}
	for length := min(p.Size, indexGuess); ; {
		opts := objects.GetOptions{Offset: p.Size - length, Length: length}
		if p.Size == 0 {
			opts = objects.GetOptions{}
		}
		obj, err := i.repo.Bucket.Get(ctx, format.PackKey(i.tenant, id), opts)
		if err != nil {
			return nil, err
		}
		blobs, needed, key, err := format.ReadIndex(obj.Data, p.Size, i.repo.Keys(i.tenant))
		if errors.Is(err, format.ErrKey) {
			err = i.checkDigest(ctx, p, err)
		}
		if err != nil {
			return nil, err
		}
		if needed > length {
			length = needed
			continue
		}
		p.Key = key
		for n := range blobs {
			blobs[n].Pack = p
		}
		return blobs, nil
	}
}

// checkDigest returns keyErr, which says that a pack's key is missing, unless the pack is damaged: then the key id may
// be wrong.
func (i *inspector) checkDigest(ctx context.Context, p *format.Pack, keyErr error) error {
	obj, err := i.repo.Bucket.Get(ctx, format.PackKey(i.tenant, p.ID), objects.GetOptions{})
	if err != nil {
		return err
	}
	if objects.Sum(obj.Data) != p.ID {
		return fmt.Errorf("%w: the content does not match the digest", objects.ErrCorrupt)
	}
	return keyErr
}
