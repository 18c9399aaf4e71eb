package format

import (
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/codefleet/codefleet/internal/objects"
)

// Codec compresses and decompresses blobs and manifests. It is safe for concurrent use.
type Codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

// NewCodec returns a Codec.
func NewCodec() Codec {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(zstdWindow),
		zstd.WithEncoderConcurrency(zstdParallel), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // constant options
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(zstdParallel), zstd.WithDecoderMaxMemory(packLimit),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // constant options
	}
	return Codec{enc, dec}
}

// Compress returns data as it is stored: a zstd frame in scratch, or data itself if the frame would not be smaller.
// Data of at least sampleBlob bytes is compressed only if two samples of it together shrink by at least
// a twentieth.
func (c Codec) Compress(data, scratch []byte) []byte {
	if len(data) >= sampleBlob {
		mid := len(data) / 2
		sample := c.enc.EncodeAll(data[mid:mid+sampleBytes], scratch[:0])
		sample = c.enc.EncodeAll(data[:sampleBytes], sample)
		if len(sample) > 2*sampleBytes*19/20 {
			return data
		}
	}
	out := c.enc.EncodeAll(data, scratch[:0])
	if len(out) >= len(data) {
		return data
	}
	return out
}

// Open returns the verified content of a stored, decrypted blob, decompressed into scratch if necessary.
func (c Codec) Open(b *Blob, stored, scratch []byte) ([]byte, error) {
	data := stored
	if int64(len(stored)) != b.Raw {
		if int64(cap(scratch)) < b.Raw {
			scratch = make([]byte, 0, b.Raw)
		}
		var err error
		if data, err = c.dec.DecodeAll(stored, scratch[:0:b.Raw]); err != nil {
			return nil, fmt.Errorf("blob %s: %w: %w", b.ID, objects.ErrCorrupt, err)
		}
	}
	if int64(len(data)) != b.Raw || objects.Sum(data) != b.ID {
		return nil, fmt.Errorf("blob %s: %w: the content does not match the digest", b.ID, objects.ErrCorrupt)
	}
	return data, nil
}
