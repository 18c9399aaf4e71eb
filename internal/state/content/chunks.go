package content

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers "fastcdc"

	"github.com/codefleet/codefleet/internal/state/format"
)

// AddFile stores a stream of size bytes, cut into content-defined chunks if it is large. It fails if the stream is
// shorter.
func (p *Packer) AddFile(r io.Reader, size int64, buf, scratch []byte) ([]format.Blob, error) {
	if size <= format.MaxBlob {
		data := buf[:size]
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, fmt.Errorf("file changed while it was read: %w", err)
		}
		if size == 0 {
			return nil, nil
		}
		b, err := p.Add(data, scratch)
		return []format.Blob{b}, err
	}
	chunker, err := chunkers.NewChunkerBuffer("fastcdc", io.LimitReader(r, size),
		chunkSizes(), buf[:cap(buf)])
	if err != nil {
		return nil, err
	}
	var blobs []format.Blob
	var total int64
	for {
		data, err := chunker.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(data) > 0 {
			b, err := p.Add(data, scratch)
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

// ErrTooLarge is returned by AddStream when the stream has more bytes than its limit.
var ErrTooLarge = errors.New("content exceeds its limit")

// AddStream stores a stream of unknown length, at most limit bytes of it. With ErrTooLarge, size is how many bytes
// were read: limit + 1, or the length of the stream if it fits into one blob. buf and scratch are reused.
func (p *Packer) AddStream(
	r io.Reader, limit int64, buf, scratch *[]byte,
) (blobs []format.Blob, size int64, err error) {
	*buf = slices.Grow((*buf)[:0], format.MaxBlob+1)[:format.MaxBlob+1]
	*scratch = slices.Grow((*scratch)[:0], format.MaxBlob)
	n, ended, err := fill(r, *buf)
	switch {
	case err != nil:
		return nil, 0, err
	case ended && int64(n) > limit:
		return nil, int64(n), ErrTooLarge
	case ended && n == 0:
		return nil, 0, nil
	case ended:
		b, err := p.Add((*buf)[:n], *scratch)
		return []format.Blob{b}, int64(n), err
	}
	counted := &counter{r: io.LimitReader(io.MultiReader(bytes.NewReader(bytes.Clone(*buf)), r), limit+1)}
	chunker, err := chunkers.NewChunker("fastcdc", counted, chunkSizes())
	if err != nil {
		return nil, 0, err
	}
	for last := false; !last; {
		data, err := chunker.Next()
		last = errors.Is(err, io.EOF)
		if err != nil && !last {
			return nil, 0, err
		}
		if counted.n > limit {
			return nil, counted.n, ErrTooLarge
		}
		if len(data) > 0 {
			b, err := p.Add(data, *scratch)
			if err != nil {
				return nil, 0, err
			}
			blobs = append(blobs, b)
		}
	}
	return blobs, counted.n, nil
}

func chunkSizes() *chunkers.ChunkerOpts {
	return &chunkers.ChunkerOpts{MinSize: chunkMin, NormalSize: chunkNormal, MaxSize: format.MaxBlob}
}

// fill reads until b is full or r ends. ended is false if r failed.
func fill(r io.Reader, b []byte) (n int, ended bool, err error) {
	for n < len(b) {
		m, err := r.Read(b[n:])
		n += m
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}
