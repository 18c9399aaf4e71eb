package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers "fastcdc"
	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/objects"
)

const (
	chunkMin    = 1 << 20
	chunkNormal = 2 << 20
	uploadAhead = 2 // packs being uploaded while the next one fills
)

// packer collects blobs into packs and uploads these as they fill. Content
// that is known already is not stored again. Its methods may be called at the same time.
type packer struct {
	store  *Store
	tenant string
	key    *key // nil: in the clear
	group  *errgroup.Group
	ctx    context.Context //nolint:containedctx // of the group, which lives as long as one commit
	slots  chan struct{}
	free   chan []byte    // buffers of uploaded packs
	named  sync.WaitGroup // packs whose name is not known yet

	stored func(objects.Digest) (blob, bool) // content that the workspace has already

	mu    sync.Mutex
	added map[objects.Digest]blob
	open  *pack
	body  []byte
	blobs []blob // in open
	sent  int64  // bytes of sealed packs
}

func (s *Store) newPacker(ctx context.Context, tenant string, stored func(objects.Digest) (blob, bool)) *packer {
	g, ctx := errgroup.WithContext(ctx)
	return &packer{
		store: s, tenant: tenant, key: s.keys(tenant).current, group: g, ctx: ctx, slots: make(chan struct{}, uploadAhead),
		free:   make(chan []byte, uploadAhead+1),
		stored: stored, added: map[objects.Digest]blob{},
	}
}

// add stores data, at most maxBlob bytes, and returns where. The pack's name
// is filled in when finish returns.
func (p *packer) add(data, scratch []byte) (blob, error) {
	id := objects.Sum(data)
	if b, ok := p.lookup(id); ok {
		return b, nil
	}
	stored := p.store.codec.compress(data, scratch)
	if p.key != nil {
		locked := p.store.buffer()
		defer func() { p.store.buffers.Put(&locked) }()
		locked = p.key.seal(locked[:0], stored, id[:])
		stored = locked
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, ok := p.added[id]; ok {
		return b, nil
	}
	if p.open != nil && p.size(1)+len(stored) > packTarget {
		if err := p.seal(); err != nil {
			return blob{}, err
		}
	}
	if p.open == nil {
		p.open, p.body = &pack{}, p.buffer()
		if p.key != nil {
			p.open.Key = p.key.id
		}
	}
	p.reserve(len(stored))
	b := blob{id, p.open, int64(len(p.body)), int64(len(stored)), int64(len(data))}
	p.body = append(p.body, stored...)
	p.blobs = append(p.blobs, b)
	p.added[id] = b
	return b, nil
}

// buffer returns an empty buffer, a used one if there is any.
func (p *packer) buffer() []byte {
	select {
	case buf := <-p.free:
		return buf
	default:
		return nil
	}
}

// reserve makes room in body: small packs grow by doubling, others are given
// their full size at once.
func (p *packer) reserve(n int) {
	const small = 256 << 10
	need := len(p.body) + n
	switch {
	case need <= cap(p.body):
	case need <= small:
		p.body = slices.Grow(p.body, n)
	default:
		body := make([]byte, len(p.body), packTarget)
		copy(body, p.body)
		p.body = body
	}
}

func (p *packer) lookup(id objects.Digest) (blob, bool) {
	if b, ok := p.stored(id); ok {
		return b, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.added[id]
	return b, ok
}

// size is the size of the open pack with n more blobs, but for their content.
func (p *packer) size(n int) int {
	return len(p.body) + (len(p.blobs)+n)*indexEntry + lockTag + lockedTail
}

// seal sends the open pack on its way; p.mu is held, which stops those who
// would fill the next one while uploads are behind.
func (p *packer) seal() error {
	if p.open == nil {
		return nil
	}
	select {
	case p.slots <- struct{}{}:
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	open, data := p.open, appendIndex(p.body, p.blobs, p.key)
	p.open, p.body, p.blobs = nil, nil, p.blobs[:0]
	p.sent += int64(len(data))
	p.named.Add(1)
	p.group.Go(func() error {
		defer func() { <-p.slots }()
		defer func() { p.free <- data[:0] }()
		open.ID, open.Size = objects.Sum(data), int64(len(data))
		p.named.Done()
		if err := p.store.objects.Put(p.ctx, packKey(p.tenant, open.ID), data, open.ID); err != nil {
			return err
		}
		p.store.cache.put(open.ID, data)
		return nil
	})
	return nil
}

// finish uploads what is left and waits. Only afterwards may blobs be used.
func (p *packer) finish() error {
	err := p.flush()
	return errors.Join(p.group.Wait(), err)
}

// flush sends what is left on its way and waits for its name: blobs may be named, and are in the store
// when finish has returned too.
func (p *packer) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.seal()
	p.named.Wait()
	return err
}

// addAll stores a stream of any length, cut into chunks where its content says.
func (p *packer) addAll(r io.Reader, size int64, buf, scratch []byte) ([]blob, error) {
	if size <= maxBlob {
		data := buf[:size]
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, fmt.Errorf("file changed while it was read: %w", err)
		}
		if size == 0 {
			return nil, nil
		}
		b, err := p.add(data, scratch)
		return []blob{b}, err
	}
	chunker, err := chunkers.NewChunkerBuffer("fastcdc", io.LimitReader(r, size),
		&chunkers.ChunkerOpts{MinSize: chunkMin, NormalSize: chunkNormal, MaxSize: maxBlob}, buf[:cap(buf)])
	if err != nil {
		return nil, err
	}
	var blobs []blob
	var total int64
	for {
		data, err := chunker.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(data) > 0 {
			b, err := p.add(data, scratch)
			if err != nil {
				return nil, err
			}
			blobs = append(blobs, b)
			total += int64(len(data))
		}
		if err != nil {
			break
		}
	}
	if total != size {
		return nil, fmt.Errorf("file changed while it was read: %d bytes, want %d", total, size)
	}
	return blobs, nil
}
