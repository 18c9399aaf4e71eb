package state

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// A pack is blobs back to back, then an index of them, so that everything can be
// found again from packs alone:
//
//	blob… | index: per blob id (32), stored (u32), raw (u32) | blobs (u32) | magic (8)
const (
	packTarget = 8 << 20 // a pack is sealed before it grows beyond
	packLimit  = 16 << 20
	packMagic  = "cfpack1\n"
	indexEntry = sha256.Size + 8
	packTail   = 4 + len(packMagic)

	maxBlob      = 4 << 20 // larger files are cut into chunks
	sampleBlob   = 128 << 10
	sampleBytes  = 16 << 10
	zstdWindow   = 1 << 20
	zstdParallel = 4
)

// codec compresses and decompresses blobs; safe for concurrent use.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() codec {
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
	return codec{enc, dec}
}

// compress returns data as it is stored: a frame in scratch, or data itself
// when that is not smaller.
func (c codec) compress(data, scratch []byte) []byte {
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

// open returns the verified content of a stored blob, decompressed into scratch
// if need be.
func (c codec) open(b *blob, stored, scratch []byte) ([]byte, error) {
	data := stored
	if b.Stored != b.Raw {
		if int64(cap(scratch)) < b.Raw {
			scratch = make([]byte, 0, b.Raw)
		}
		var err error
		if data, err = c.dec.DecodeAll(stored, scratch[:0:b.Raw]); err != nil {
			return nil, fmt.Errorf("blob %s: %w: %w", b.ID, ErrCorrupt, err)
		}
	}
	if int64(len(data)) != b.Raw || Sum(data) != b.ID {
		return nil, fmt.Errorf("blob %s: %w: content has another digest", b.ID, ErrCorrupt)
	}
	return data, nil
}

// appendIndex seals the body of a pack.
func appendIndex(body []byte, blobs []blob) []byte {
	for _, b := range blobs {
		body = append(body, b.ID[:]...)
		body = binary.BigEndian.AppendUint32(body, uint32(b.Stored))
		body = binary.BigEndian.AppendUint32(body, uint32(b.Raw))
	}
	body = binary.BigEndian.AppendUint32(body, uint32(len(blobs)))
	return append(body, packMagic...)
}

// readIndex returns the blobs of a pack, with their Pack unset. The
// content is not verified.
func readIndex(data []byte) ([]blob, error) {
	blobs, _, err := readIndexTail(data, int64(len(data)))
	return blobs, err
}

// readIndexTail is readIndex for the last bytes of a pack of size bytes. When those are too few, more says
// how many are needed.
func readIndexTail(data []byte, size int64) (blobs []blob, more int64, err error) {
	if len(data) < packTail || size > packLimit || string(data[len(data)-len(packMagic):]) != packMagic {
		return nil, 0, fmt.Errorf("pack of %d bytes: %w: no index", size, ErrCorrupt)
	}
	rest := data[:len(data)-packTail]
	count := int64(binary.BigEndian.Uint32(data[len(rest):]))
	if more = count*indexEntry + int64(packTail); more > size {
		return nil, 0, fmt.Errorf("pack of %d bytes: %w: index of %d blobs", size, ErrCorrupt, count)
	}
	if more > int64(len(data)) {
		return nil, more, nil
	}
	bodyLen := size - more
	index := rest[int64(len(rest))-count*indexEntry:]
	blobs = make([]blob, count)
	var offset int64
	for i := range blobs {
		b := &blobs[i]
		copy(b.ID[:], index)
		b.Stored = int64(binary.BigEndian.Uint32(index[sha256.Size:]))
		b.Raw = int64(binary.BigEndian.Uint32(index[sha256.Size+4:]))
		b.Offset = offset
		offset += b.Stored
		if b.Stored > b.Raw || b.Raw > maxBlob {
			return nil, 0, fmt.Errorf("pack of %d bytes: %w: blob of %d bytes stored in %d", size, ErrCorrupt, b.Raw, b.Stored)
		}
		index = index[indexEntry:]
	}
	if offset != bodyLen {
		return nil, 0, fmt.Errorf("pack of %d bytes: %w: blobs take %d of %d bytes", size, ErrCorrupt, offset, bodyLen)
	}
	return blobs, more, nil
}
