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

// AddFile stores the first size bytes of a stream: up to format.MaxBlob as one blob, more as content-defined chunks. It
// returns an error if the stream is shorter. buf has a capacity of at least min(size, format.MaxBlob).
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
	counted := &countingReader{r: io.LimitReader(r, size)}
	chunker, err := chunkers.NewChunkerBuffer("fastcdc", counted, chunkSizes(), buf[:cap(buf)])
	if err != nil {
		return nil, err
	}
	blobs, err := p.addChunks(chunker, counted, size, scratch)
	if err == nil && counted.n != size {
		err = fmt.Errorf("file changed while it was read: %d bytes, want %d", counted.n, size)
	}
	return blobs, err
}

// ErrTooLarge is returned by AddStream when the stream is longer than the limit.
var ErrTooLarge = errors.New("content exceeds its limit")

// AddStream stores a stream of unknown length. If the length exceeds limit, it returns ErrTooLarge, and size is how
// many bytes were read: the length of a stream that fits into one blob, or limit + 1. AddStream enlarges buf and
// scratch if they are too small.
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
	counted := &countingReader{r: io.LimitReader(io.MultiReader(bytes.NewReader(bytes.Clone(*buf)), r), limit+1)}
	chunker, err := chunkers.NewChunker("fastcdc", counted, chunkSizes())
	if err != nil {
		return nil, 0, err
	}
	blobs, err = p.addChunks(chunker, counted, limit, *scratch)
	return blobs, counted.n, err
}

// addChunks stores the chunks that chunker reads from counted. It returns ErrTooLarge if these are more than limit
// bytes.
func (p *Packer) addChunks(
	chunker *chunkers.Chunker, counted *countingReader, limit int64, scratch []byte,
) (blobs []format.Blob, err error) {
	for last := false; !last; {
		data, err := chunker.Next()
		last = errors.Is(err, io.EOF)
		if err != nil && !last {
			return nil, err
		}
		if counted.n > limit {
			return nil, ErrTooLarge
		}
		if len(data) > 0 {
			b, err := p.Add(data, scratch)
			if err != nil {
				return nil, err
			}
			blobs = append(blobs, b)
		}
	}
	return blobs, nil
}

func chunkSizes() *chunkers.ChunkerOpts {
	return &chunkers.ChunkerOpts{MinSize: chunkMin, NormalSize: chunkNormal, MaxSize: format.MaxBlob}
}

// fill reads until b is full or r ends. Unlike io.ReadFull, it distinguishes the end of a stream from a stream that
// breaks off with io.ErrUnexpectedEOF, and returns that error.
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

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}
