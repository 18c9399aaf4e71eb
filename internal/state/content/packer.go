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
	chunkMin    = 1 << 20
	chunkNormal = 2 << 20
	uploadAhead = 2 // packs being uploaded while the next one fills
)

// Packer collects blobs into packs and uploads these as they fill. Content
// that is known already is not stored again. Its methods may be called at the same time.
type Packer struct {
	store  *Store
	tenant string
	key    *format.Key // nil: in the clear
	group  *errgroup.Group
	ctx    context.Context //nolint:containedctx // of the group, which lives as long as one commit
	slots  chan struct{}
	free   chan []byte    // buffers of uploaded packs
	named  sync.WaitGroup // packs whose name is not known yet

	stored func(objects.Digest) (format.Blob, bool) // content that the workspace has already

	mu    sync.Mutex
	added map[objects.Digest]format.Blob
	open  *format.Pack
	body  []byte
	blobs []format.Blob // in open
	sent  int64         // bytes of sealed packs
}

func (s *Store) NewPacker(ctx context.Context, tenant string, stored func(objects.Digest) (format.Blob, bool)) *Packer {
	g, ctx := errgroup.WithContext(ctx)
	return &Packer{
		store: s, tenant: tenant, key: s.Keys(tenant).Current, group: g, ctx: ctx, slots: make(chan struct{}, uploadAhead),
		free:   make(chan []byte, uploadAhead+1),
		stored: stored, added: map[objects.Digest]format.Blob{},
	}
}

// Add stores data, at most maxBlob bytes, and returns where. The pack's name
// is filled in when finish returns.
func (p *Packer) Add(data, scratch []byte) (format.Blob, error) {
	id := objects.Sum(data)
	if b, ok := p.Lookup(id); ok {
		return b, nil
	}
	stored := p.store.Codec.Compress(data, scratch)
	if p.key != nil {
		locked := p.store.Buffer()
		defer func() { p.store.PutBuffer(&locked) }()
		locked = p.key.Encrypt(locked[:0], stored, id[:])
		stored = locked
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, ok := p.added[id]; ok {
		return b, nil
	}
	if p.open != nil && p.size(1)+len(stored) > format.PackTarget {
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
	b := format.Blob{ID: id, Pack: p.open, Offset: int64(len(p.body)), Stored: int64(len(stored)), Raw: int64(len(data))}
	p.body = append(p.body, stored...)
	p.blobs = append(p.blobs, b)
	p.added[id] = b
	return b, nil
}

// buffer returns an empty buffer, a used one if there is any.
func (p *Packer) buffer() []byte {
	select {
	case buf := <-p.free:
		return buf
	default:
		return nil
	}
}

// reserve makes room in body: small packs grow by doubling, others are given
// their full size at once.
func (p *Packer) reserve(n int) {
	const small = 256 << 10
	need := len(p.body) + n
	switch {
	case need <= cap(p.body):
	case need <= small:
		p.body = slices.Grow(p.body, n)
	default:
		body := make([]byte, len(p.body), format.PackTarget)
		copy(body, p.body)
		p.body = body
	}
}

func (p *Packer) Lookup(id objects.Digest) (format.Blob, bool) {
	if b, ok := p.stored(id); ok {
		return b, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.added[id]
	return b, ok
}

// size is the size of the open pack with n more blobs, but for their content.
func (p *Packer) size(n int) int { return format.PackSize(len(p.body), len(p.blobs)+n) }

// send sends the open pack on its way; p.mu is held, which stops those who
// would fill the next one while uploads are behind.
func (p *Packer) send() error {
	if p.open == nil {
		return nil
	}
	select {
	case p.slots <- struct{}{}:
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	open, data := p.open, format.AppendIndex(p.body, p.blobs, p.key)
	p.open, p.body, p.blobs = nil, nil, p.blobs[:0]
	p.sent += int64(len(data))
	p.named.Add(1)
	p.group.Go(func() error {
		defer func() { <-p.slots }()
		defer func() { p.free <- data[:0] }()
		open.ID, open.Size = objects.Sum(data), int64(len(data))
		p.named.Done()
		if err := p.store.Bucket.Put(p.ctx, format.PackKey(p.tenant, open.ID), data, open.ID); err != nil {
			return err
		}
		p.store.cache.put(open.ID, data)
		return nil
	})
	return nil
}

// Finish uploads what is left and waits. Only afterwards may blobs be used.
func (p *Packer) Finish() error {
	err := p.Flush()
	return errors.Join(p.group.Wait(), err)
}

// Flush sends what is left on its way and waits for its name: blobs may be named, and are in the store
// when finish has returned too.
func (p *Packer) Flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.send()
	p.named.Wait()
	return err
}
