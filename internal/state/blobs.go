package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/objects"
)

const (
	rangeGap   = 64 << 10 // read over gaps smaller than this
	wholePack  = 1 << 20  // packs up to this size are read whole
	fetchAhead = 2        // packs read at the same time
	shardBlobs = 64       // blobs that one goroutine delivers at a time
)

// want is a piece of content that belongs at an offset of a path.
type want struct {
	blob   *blob
	target int   // the caller's
	offset int64 // within the target
}

// deliver takes verified content, valid during the call. Calls overlap.
// worker is a number below fetchWorkers(), and no two overlapping calls share it.
type deliver func(worker int, w want, data []byte) error

func fetchWorkers() int { return min(runtime.GOMAXPROCS(0), 8) }

// fetch reads the wanted blobs from the cache or the store.
func (s *Store) fetch(ctx context.Context, tenant string, wants []want, to deliver) error {
	segments := plan(wants, s.cache.has)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchAhead)
	workers := make(chan int, fetchWorkers())
	for i := range cap(workers) {
		workers <- i
	}
	buffers := make(chan []byte, fetchAhead)
	for range fetchAhead {
		buffers <- nil
	}
	for _, seg := range segments {
		g.Go(func() error {
			buf := <-buffers
			defer func() { buffers <- buf }()
			if int64(cap(buf)) < seg.length {
				buf = make([]byte, 0, seg.length)
			}
			return s.fetchSegment(ctx, tenant, seg, buf, workers, to)
		})
	}
	return g.Wait()
}

// segment is a contiguous part of a pack with the blobs wanted from it.
type segment struct {
	pack           *pack
	offset, length int64
	wants          []want
}

// plan groups wants by pack: whole packs where more than half is needed or the
// pack is small or local, else ranges.
func plan(wants []want, local func(objects.Digest) bool) []segment {
	order := map[objects.Digest]int{}
	var groups [][]want
	for _, w := range wants {
		i, ok := order[w.blob.Pack.ID]
		if !ok {
			i = len(groups)
			order[w.blob.Pack.ID] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], w)
	}
	var segments []segment
	for _, g := range groups {
		slices.SortFunc(g, func(a, b want) int { return cmp.Compare(a.blob.Offset, b.blob.Offset) })
		p := g[0].blob.Pack
		ranges := coalesce(p, g)
		var needed int64
		for _, r := range ranges {
			needed += r.length
		}
		if !local(p.ID) && (p.Size <= wholePack || needed > p.Size/2) {
			ranges = []segment{{p, 0, p.Size, g}}
		}
		segments = append(segments, ranges...)
	}
	return segments
}

func coalesce(p *pack, sorted []want) []segment {
	var ranges []segment
	for i, w := range sorted {
		end := w.blob.Offset + w.blob.Stored
		if n := len(ranges); n > 0 {
			last := &ranges[n-1]
			if w.blob.Offset <= last.offset+last.length+rangeGap {
				last.length = max(last.length, end-last.offset)
				last.wants = append(last.wants, w)
				continue
			}
		}
		ranges = append(ranges, segment{p, w.blob.Offset, w.blob.Stored, sorted[i : i+1 : i+1]})
	}
	return ranges
}

func (s *Store) fetchSegment(ctx context.Context, tenant string, seg segment, buf []byte, workers chan int, to deliver) error {
	if data := s.readLocal(seg, buf); data != nil {
		err := s.deliverAll(ctx, tenant, seg, data, workers, to)
		if !errors.Is(err, objects.ErrCorrupt) {
			return err
		}
		s.opts.Log.WarnContext(ctx, "cached pack is damaged, reading it again", "pack", seg.pack.ID.String())
		s.cache.drop(seg.pack.ID)
	}
	key := packKey(tenant, seg.pack.ID)
	opts := objects.GetOptions{Buffer: buf}
	whole := seg.offset == 0 && seg.length == seg.pack.Size
	if !whole {
		opts.Offset, opts.Length = seg.offset, seg.length
	}
	obj, err := s.objects.Get(ctx, key, opts)
	if err != nil {
		return err
	}
	if int64(len(obj.Data)) != seg.length {
		return fmt.Errorf("%s: %w: %d bytes, want %d", key, objects.ErrCorrupt, len(obj.Data), seg.length)
	}
	if err := s.deliverAll(ctx, tenant, seg, obj.Data, workers, to); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if whole {
		s.cache.put(seg.pack.ID, obj.Data)
	}
	return nil
}

// readLocal returns the segment from the cache in buf, or nil.
func (s *Store) readLocal(seg segment, buf []byte) []byte {
	f := s.cache.open(seg.pack.ID)
	if f == nil {
		return nil
	}
	defer f.Close()
	data := buf[:seg.length]
	if _, err := f.ReadAt(data, seg.offset); err != nil {
		s.cache.drop(seg.pack.ID)
		return nil
	}
	return data
}

// buffer returns a reusable buffer; give it back with s.buffers.Put(&buf).
func (s *Store) buffer() []byte {
	if p, ok := s.buffers.Get().(*[]byte); ok {
		return *p
	}
	return nil
}

func (s *Store) deliverAll(ctx context.Context, tenant string, seg segment, data []byte, workers chan int, to deliver) error {
	g, gctx := errgroup.WithContext(ctx)
	for shard := range slices.Chunk(seg.wants, shardBlobs) {
		if gctx.Err() != nil {
			break
		}
		worker := <-workers
		g.Go(func() error {
			defer func() { workers <- worker }()
			scratch := s.buffer()
			defer func() { s.buffers.Put(&scratch) }()
			for _, w := range shard {
				at := w.blob.Offset - seg.offset
				if w.blob.Stored != w.blob.Raw && int64(cap(scratch)) < w.blob.Raw {
					scratch = make([]byte, 0, w.blob.Raw)
				}
				content, err := s.openBlob(tenant, w.blob, data[at:at+w.blob.Stored], scratch)
				if err != nil {
					return err
				}
				if err := to(worker, w, content); err != nil {
					return err
				}
			}
			return gctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}
