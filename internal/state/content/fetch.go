package content

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

const (
	rangeGap   = 64 << 10 // bytes; ranges of a pack that are closer than this are read as one
	wholePack  = 1 << 20  // bytes; packs up to this size are read whole
	fetchAhead = 2        // segments that are read at the same time
	shardBlobs = 64       // blobs that one goroutine delivers
)

// Want is a blob to fetch, and where the caller wants it.
type Want struct {
	Blob   *format.Blob
	Target int   // chosen by the caller, such as an index
	Offset int64 // within the target
}

// deliver receives verified content, which is valid during the call. Calls are concurrent; worker is the number of
// the goroutine, below FetchWorkers. No two concurrent calls have the same number.
type deliver func(worker int, w Want, data []byte) error

// FetchWorkers is the maximal number of concurrent calls of deliver. It stays the same when GOMAXPROCS changes.
var FetchWorkers = min(runtime.GOMAXPROCS(0), 8)

// Fetch reads blobs from the cache or the object store, and calls fn with each.
func (s *Store) Fetch(ctx context.Context, tenant string, wants []Want, fn deliver) error {
	segments := plan(wants, s.cache.has)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchAhead)
	workers := make(chan int, FetchWorkers)
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
			return s.fetchSegment(ctx, tenant, seg, buf, workers, fn)
		})
	}
	return g.Wait()
}

// segment is a contiguous part of a pack, with the blobs wanted from it.
type segment struct {
	pack           *format.Pack
	offset, length int64
	wants          []Want
}

// plan returns the segments to read. A pack that is small, or of which more than half is needed, is read whole. Other
// packs, and cached ones, are read in ranges.
func plan(wants []Want, cached func(objects.Digest) bool) []segment {
	groupOf := map[objects.Digest]int{} // index in groups, by the pack's id
	var groups [][]Want
	for _, w := range wants {
		i, ok := groupOf[w.Blob.Pack.ID]
		if !ok {
			i = len(groups)
			groupOf[w.Blob.Pack.ID] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], w)
	}
	var segments []segment
	for _, g := range groups {
		slices.SortFunc(g, func(a, b Want) int { return cmp.Compare(a.Blob.Offset, b.Blob.Offset) })
		p := g[0].Blob.Pack
		ranges := coalesce(p, g)
		var needed int64
		for _, r := range ranges {
			needed += r.length
		}
		if !cached(p.ID) && (p.Size <= wholePack || needed > p.Size/2) {
			ranges = []segment{{p, 0, p.Size, g}}
		}
		segments = append(segments, ranges...)
	}
	return segments
}

// coalesce returns the ranges of a pack that contain the wanted blobs, which are sorted by offset.
func coalesce(p *format.Pack, sorted []Want) []segment {
	var ranges []segment
	for i, w := range sorted {
		end := w.Blob.Offset + w.Blob.Stored
		if n := len(ranges); n > 0 {
			last := &ranges[n-1]
			if w.Blob.Offset <= last.offset+last.length+rangeGap {
				last.length = max(last.length, end-last.offset)
				last.wants = append(last.wants, w)
				continue
			}
		}
		ranges = append(ranges, segment{p, w.Blob.Offset, w.Blob.Stored, sorted[i : i+1 : i+1]})
	}
	return ranges
}

// fetchSegment reads a segment and calls fn with each wanted blob. If the pack is cached but damaged, it drops the pack
// from the cache, and reads from the object store the blobs with which it has not called fn.
func (s *Store) fetchSegment(
	ctx context.Context, tenant string, seg segment, buf []byte, workers chan int, fn deliver,
) error {
	if data := s.readCached(seg, buf); data != nil {
		left, err := s.deliverAll(ctx, tenant, seg, data, workers, fn)
		if !errors.Is(err, objects.ErrCorrupt) {
			return err
		}
		seg.wants = left
		s.log.WarnContext(ctx, "cached pack damaged", "pack", seg.pack.ID.String())
		s.cache.drop(seg.pack.ID)
	}
	key := format.PackKey(tenant, seg.pack.ID)
	opts := objects.GetOptions{Buffer: buf}
	whole := seg.offset == 0 && seg.length == seg.pack.Size
	if !whole {
		opts.Offset, opts.Length = seg.offset, seg.length
	}
	obj, err := s.Bucket.Get(ctx, key, opts)
	if err != nil {
		return err
	}
	if int64(len(obj.Data)) != seg.length {
		return fmt.Errorf("%s: %w: read %d bytes, want %d", key, objects.ErrCorrupt, len(obj.Data), seg.length)
	}
	if _, err := s.deliverAll(ctx, tenant, seg, obj.Data, workers, fn); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if whole {
		s.cache.put(seg.pack.ID, obj.Data)
	}
	return nil
}

// readCached reads a segment from the cache into buf. It returns nil if the pack is not cached.
func (s *Store) readCached(seg segment, buf []byte) []byte {
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

// deliverAll opens the wanted blobs of a segment, whose stored bytes are data, and calls fn with each. After an error,
// it returns those for which fn was not called, or returned an error.
func (s *Store) deliverAll(
	ctx context.Context, tenant string, seg segment, data []byte, workers chan int, fn deliver,
) (left []Want, err error) {
	delivered := make([]bool, len(seg.wants))
	g, gctx := errgroup.WithContext(ctx)
	for first := 0; first < len(seg.wants); first += shardBlobs {
		if gctx.Err() != nil {
			break
		}
		worker := <-workers
		g.Go(func() error {
			defer func() { workers <- worker }()
			scratch := s.Buffer()
			defer func() { s.PutBuffer(&scratch) }()
			for i := first; i < min(first+shardBlobs, len(seg.wants)); i++ {
				w := seg.wants[i]
				at := w.Blob.Offset - seg.offset
				if w.Blob.Stored != w.Blob.Raw && int64(cap(scratch)) < w.Blob.Raw {
					scratch = make([]byte, 0, w.Blob.Raw)
				}
				content, err := s.OpenBlob(tenant, w.Blob, data[at:at+w.Blob.Stored], scratch)
				if err != nil {
					return err
				}
				if err := fn(worker, w, content); err != nil {
					return err
				}
				delivered[i] = true
			}
			return gctx.Err()
		})
	}
	if err = g.Wait(); err == nil {
		return nil, ctx.Err()
	}
	for i, w := range seg.wants {
		if !delivered[i] {
			left = append(left, w)
		}
	}
	return left, err
}

// OpenBlob returns the verified content of a stored blob. If necessary, it decrypts the blob, and decompresses it into
// scratch.
func (s *Store) OpenBlob(tenant string, b *format.Blob, stored, scratch []byte) ([]byte, error) {
	if b.Pack.Key == "" {
		return s.Codec.Open(b, stored, scratch)
	}
	k, err := s.Keys(tenant).Find(b.Pack.Key, format.PackKey(tenant, b.Pack.ID))
	if err != nil {
		return nil, err
	}
	plain, err := k.Decrypt(stored, b.ID[:])
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w: key %s does not decrypt it", b.ID, objects.ErrCorrupt, k.ID)
	}
	return s.Codec.Open(b, plain, scratch)
}

// AppendWants appends the blobs of e to wants, for a target that holds the whole file.
func AppendWants(wants []Want, e *format.Entry, target int) []Want {
	var offset int64
	for i := range e.Blobs {
		wants = append(wants, Want{&e.Blobs[i], target, offset})
		offset += e.Blobs[i].Raw
	}
	return wants
}

// ReadFile returns the content of a file that fits in memory.
func (s *Store) ReadFile(ctx context.Context, tenant string, e *format.Entry) ([]byte, error) {
	out := make([]byte, e.Size)
	err := s.Fetch(ctx, tenant, AppendWants(nil, e, 0), func(_ int, w Want, data []byte) error {
		copy(out[w.Offset:], data)
		return nil
	})
	return out, err
}
