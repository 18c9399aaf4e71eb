package content

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

const (
	chunkMin    = 1 << 20 // bytes
	chunkNormal = 2 << 20 // bytes
	uploadAhead = 2       // packs that are uploaded while the next one is filled
)

// Packer collects blobs into packs, and uploads each pack when it is full. It skips content that is stored already. It
// is safe for concurrent use.
type Packer struct {
	store  *Store
	tenant string
	key    *format.Key // nil means no encryption
	group  *errgroup.Group
	ctx    context.Context //nolint:containedctx // the group's context, which lives as long as one commit
	slots  chan struct{}   // limits the uploads at the same time
	free   chan []byte     // buffers of uploaded packs
	named  sync.WaitGroup  // counts packs whose digest is not known yet

	stored func(objects.Digest) (format.Blob, bool) // finds content that is in the object store

	mu        sync.Mutex
	added     map[objects.Digest]format.Blob // what Add has put into packs
	open      *format.Pack                   // pack that is being filled
	body      []byte                         // bytes of the open pack
	blobs     []format.Blob                  // blobs of the open pack
	hold      int                            // largest pack that Flush holds, in bytes
	completed bool                           // at least one pack is complete: uploaded or held
	held      *Held
	heldPack  *format.Pack // the pack whose bytes held has
}

// Held is all new content, in a pack that is complete and not uploaded.
type Held struct {
	ID   objects.Digest
	Data []byte // empty if there is no new content

	packer *Packer
}

// MarkCarried tells the packer that a HEAD carries the pack, so that Finish does not upload it. It caches the pack.
func (h *Held) MarkCarried() {
	if len(h.Data) == 0 {
		return
	}
	p := h.packer
	p.mu.Lock()
	p.held = nil
	p.mu.Unlock()
	p.store.cache.put(h.ID, h.Data)
}

// Hold makes Flush hold the content in memory, instead of uploading it, if it is one pack of at most limit bytes. Call
// it before Add.
func (p *Packer) Hold(limit int) { p.hold = limit }

// Held returns the content that Flush holds, or nil if content is being uploaded.
func (p *Packer) Held() *Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold > 0 && !p.completed && p.open == nil {
		return &Held{}
	}
	return p.held
}

// NewPacker returns a Packer for a tenant. stored finds content that is in the object store already. Finish must be
// called.
func (s *Store) NewPacker(ctx context.Context, tenant string, stored func(objects.Digest) (format.Blob, bool)) *Packer {
	g, ctx := errgroup.WithContext(ctx)
	return &Packer{
		store: s, tenant: tenant, key: s.Keys(tenant).Current, group: g, ctx: ctx,
		slots: make(chan struct{}, uploadAhead), free: make(chan []byte, uploadAhead+1),
		stored: stored, added: map[objects.Digest]format.Blob{},
	}
}

// Add stores data of at most format.MaxBlob bytes, and returns its location; the pack's digest is known after Flush.
// scratch is used for compression.
func (p *Packer) Add(data, scratch []byte) (format.Blob, error) {
	id := objects.Sum(data)
	if b, ok := p.Lookup(id); ok {
		return b, nil
	}
	stored := p.store.Codec.Compress(data, scratch)
	if p.key != nil {
		encrypted := p.store.Buffer()
		defer func() { p.store.PutBuffer(&encrypted) }()
		encrypted = p.key.Encrypt(encrypted[:0], stored, id[:])
		stored = encrypted
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, ok := p.added[id]; ok {
		return b, nil
	}
	if p.open != nil && format.PackSize(len(p.body)+len(stored), len(p.blobs)+1) > format.PackTarget {
		if err := p.send(); err != nil {
			return format.Blob{}, err
		}
	}
	if p.open == nil {
		p.open, p.body = &format.Pack{}, p.buffer()
		if p.key != nil {
			p.open.Key = p.key.ID
		}
	}
	p.reserve(len(stored))
	b := format.Blob{
		ID: id, Pack: p.open, Offset: int64(len(p.body)), Stored: int64(len(stored)), Raw: int64(len(data)),
	}
	p.body = append(p.body, stored...)
	p.blobs = append(p.blobs, b)
	p.added[id] = b
	return b, nil
}

// buffer returns an empty buffer, or nil.
func (p *Packer) buffer() []byte {
	select {
	case buf := <-p.free:
		return buf
	default:
		return nil
	}
}

// reserve makes room for n bytes in body. Small packs grow by doubling; larger ones get their full capacity at once.
func (p *Packer) reserve(n int) {
	const small = 256 << 10
	need := len(p.body) + n
	switch {
	case need <= cap(p.body):
	case need <= small:
		p.body = slices.Grow(p.body, n)
	default:
		p.body = append(make([]byte, 0, format.PackTarget), p.body...)
	}
}

// Lookup returns where content is or will be stored.
func (p *Packer) Lookup(id objects.Digest) (format.Blob, bool) {
	if b, ok := p.stored(id); ok {
		return b, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.added[id]
	return b, ok
}

// complete returns the open pack with its index. The caller holds p.mu.
func (p *Packer) complete() []byte {
	blobs := p.blobs
	if p.key == nil {
		blobs = append(blobs, format.NewSalt())
	}
	return format.AppendIndex(p.body, blobs, p.key)
}

// send begins to upload the open pack. The caller holds p.mu, so that the next pack is not filled while uploads lag
// behind.
func (p *Packer) send() error {
	if p.open == nil {
		return nil
	}
	open, data := p.open, p.complete()
	p.open, p.body, p.blobs = nil, nil, p.blobs[:0]
	return p.upload(open, data)
}

// upload begins to upload a complete pack. The caller holds p.mu.
func (p *Packer) upload(pack *format.Pack, data []byte) error {
	p.completed = true
	select {
	case p.slots <- struct{}{}:
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	p.named.Add(1)
	p.group.Go(func() error {
		defer func() { <-p.slots }()
		if pack.Size == 0 { // the pack was not held, so it has no digest yet, and only the packer uses its buffer
			pack.ID, pack.Size = objects.Sum(data), int64(len(data))
			defer func() { p.free <- data[:0] }()
		}
		p.named.Done()
		if err := p.store.Bucket.Put(p.ctx, format.PackKey(p.tenant, pack.ID), data, pack.ID); err != nil {
			return err
		}
		p.store.cache.put(pack.ID, data)
		return nil
	})
	return nil
}

// holdOpen completes the open pack without uploading it, if it is the only one and small. The caller holds p.mu.
func (p *Packer) holdOpen() {
	if p.open == nil || p.completed || format.PackSize(len(p.body), len(p.blobs)) > p.hold {
		return
	}
	data := p.complete()
	p.open.ID, p.open.Size = objects.Sum(data), int64(len(data))
	p.held, p.completed = &Held{p.open.ID, slices.Clip(data), p}, true
	p.heldPack, p.open, p.body, p.blobs = p.open, nil, nil, p.blobs[:0]
}

// Finish uploads the last pack and a held one, and waits for all uploads. Only then may a HEAD refer to the blobs. The
// blobs of a pack that the HEAD carries are an exception.
func (p *Packer) Finish() error {
	p.mu.Lock()
	var err error
	if p.held != nil {
		err = p.upload(p.heldPack, p.held.Data)
		p.held = nil
	}
	err = errors.Join(err, p.send())
	p.mu.Unlock()
	p.named.Wait()
	return errors.Join(p.group.Wait(), err)
}

// Flush holds the last pack, see Hold, or begins to upload it. It waits until the digests of all packs are known, so
// that a manifest can refer to the blobs.
func (p *Packer) Flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holdOpen()
	err := p.send()
	p.named.Wait()
	return err
}
