package state

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/codefleet/codefleet/internal/objects"
)

// A pack is blobs back to back, then an index of them, so that everything can be
// found again from packs alone:
//
//	blob… | index: per blob id (32), stored (u32), raw (u32) | blobs (u32) | magic (8)
//
// In an encrypted one, each blob and the index are, as one each:
//
//	blob… | index and 28 bytes | key (8) | blobs (u32) | magic (8)
const (
	packTarget = 8 << 20 // a pack is sealed before it grows beyond
	packLimit  = 16 << 20
	packMagic  = "cfpack1\n"
	indexEntry = sha256.Size + 8
	packTail   = 4 + len(packMagic)
	packLocked = "cfpackE\n" // magic of an encrypted one
	lockedTail = packTail + keyIDLen

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
		return nil, fmt.Errorf("blob %s: %w: content has another digest", b.ID, objects.ErrCorrupt)
	}
	return data, nil
}

// appendIndex seals the body of a pack.
func appendIndex(body []byte, blobs []blob, k *key) []byte {
	start := len(body)
	for _, b := range blobs {
		body = append(body, b.ID[:]...)
		body = binary.BigEndian.AppendUint32(body, uint32(b.Stored))
		body = binary.BigEndian.AppendUint32(body, uint32(b.Raw))
	}
	magic := packMagic
	if k != nil {
		index := append([]byte{}, body[start:]...)
		body = append(k.seal(body[:start], index, []byte(packLocked)), k.id...)
		magic = packLocked
	}
	body = binary.BigEndian.AppendUint32(body, uint32(len(blobs)))
	return append(body, magic...)
}

// readIndex returns the blobs of a pack, with their Pack unset, and the id of its key. The
// content is not verified.
func readIndex(data []byte, keys *keyring) (blobs []blob, id string, err error) {
	blobs, _, id, err = readIndexTail(data, int64(len(data)), keys)
	return blobs, id, err
}

// readIndexTail is readIndex for the last bytes of a pack of size bytes. When those are too few, more says
// how many are needed.
func readIndexTail(data []byte, size int64, keys *keyring) (blobs []blob, more int64, id string, err error) {
	bad := func(format string, args ...any) ([]blob, int64, string, error) {
		return nil, 0, "", fmt.Errorf("pack of %d bytes: %w: %s", size, objects.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	if len(data) < packTail || size > packLimit {
		return bad("no index")
	}
	locked, tail, overhead := false, packTail, int64(0)
	switch string(data[len(data)-len(packMagic):]) {
	case packMagic:
	case packLocked:
		locked, tail, overhead = true, lockedTail, lockTag
	default:
		return bad("no index")
	}
	count := int64(binary.BigEndian.Uint32(data[len(data)-packTail:]))
	length := count*indexEntry + overhead
	if more = length + int64(tail); more > size {
		return bad("index of %d blobs", count)
	}
	if more > int64(len(data)) {
		return nil, more, "", nil
	}
	end := len(data) - tail
	index := data[int64(end)-length : end]
	if locked {
		id = string(data[end : end+keyIDLen])
		k, err := keys.find(id, "a pack")
		if err != nil {
			return nil, 0, id, err
		}
		if index, err = k.aead.Open(nil, nil, index, []byte(packLocked)); err != nil {
			return bad("its index is not what the key %s has encrypted", id)
		}
	}
	if blobs, err = parseIndex(index, count, size-more, overhead); err != nil {
		return bad("%v", err)
	}
	return blobs, more, id, nil
}

func parseIndex(index []byte, count, bodyLen, overhead int64) ([]blob, error) {
	blobs := make([]blob, count)
	var offset int64
	for i := range blobs {
		b := &blobs[i]
		copy(b.ID[:], index)
		b.Stored = int64(binary.BigEndian.Uint32(index[sha256.Size:]))
		b.Raw = int64(binary.BigEndian.Uint32(index[sha256.Size+4:]))
		b.Offset = offset
		offset += b.Stored
		if b.Stored < overhead || b.Stored-overhead > b.Raw || b.Raw > maxBlob {
			return nil, fmt.Errorf("blob of %d bytes stored in %d", b.Raw, b.Stored)
		}
		index = index[indexEntry:]
	}
	if offset != bodyLen {
		return nil, fmt.Errorf("blobs take %d of %d bytes", offset, bodyLen)
	}
	return blobs, nil
}
