package format

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

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
	PackTarget         = 8 << 20 // a pack is sealed before it grows beyond
	packLimit          = 16 << 20
	packMagic          = "cfpack1\n"
	indexEntry         = sha256.Size + 8
	packTail           = 4 + len(packMagic)
	packEncryptedMagic = "cfpackE\n" // magic of an encrypted one
	encryptedTail      = packTail + KeyIDLength

	MaxBlob      = 4 << 20 // larger files are cut into chunks
	sampleBlob   = 128 << 10
	sampleBytes  = 16 << 10
	zstdWindow   = 1 << 20
	zstdParallel = 4
)

// PackSize returns the size of a pack, encrypted or not, with n blobs that take body bytes; at most.
func PackSize(body, n int) int { return body + n*indexEntry + gcmOverhead + encryptedTail }

// AppendIndex seals the body of a pack.
func AppendIndex(body []byte, blobs []Blob, k *Key) []byte {
	start := len(body)
	for _, b := range blobs {
		body = append(body, b.ID[:]...)
		body = binary.BigEndian.AppendUint32(body, uint32(b.Stored))
		body = binary.BigEndian.AppendUint32(body, uint32(b.Raw))
	}
	magic := packMagic
	if k != nil {
		index := append([]byte{}, body[start:]...)
		body = append(k.Encrypt(body[:start], index, []byte(packEncryptedMagic)), k.ID...)
		magic = packEncryptedMagic
	}
	body = binary.BigEndian.AppendUint32(body, uint32(len(blobs)))
	return append(body, magic...)
}

// readIndex returns the blobs of a pack, with their Pack unset, and the id of its key. The
// content is not verified.
func readIndex(data []byte, keys *Keyring) (blobs []Blob, id string, err error) {
	blobs, _, id, err = ReadIndexTail(data, int64(len(data)), keys)
	return blobs, id, err
}

// ReadIndexTail is readIndex for the last bytes of a pack of size bytes. When those are too few, more says
// how many are needed.
func ReadIndexTail(data []byte, size int64, keys *Keyring) (blobs []Blob, more int64, id string, err error) {
	bad := func(format string, args ...any) ([]Blob, int64, string, error) {
		return nil, 0, "", fmt.Errorf("pack of %d bytes: %w: %s", size, objects.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	if len(data) < packTail || size > packLimit {
		return bad("no index")
	}
	locked, tail, overhead := false, packTail, int64(0)
	switch string(data[len(data)-len(packMagic):]) {
	case packMagic:
	case packEncryptedMagic:
		locked, tail, overhead = true, encryptedTail, gcmOverhead
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
		id = string(data[end : end+KeyIDLength])
		k, err := keys.Find(id, "a pack")
		if err != nil {
			return nil, 0, id, err
		}
		if index, err = k.aead.Open(nil, nil, index, []byte(packEncryptedMagic)); err != nil {
			return bad("its index is not what the key %s has encrypted", id)
		}
	}
	if blobs, err = parseIndex(index, count, size-more, overhead); err != nil {
		return bad("%v", err)
	}
	return blobs, more, id, nil
}

func parseIndex(index []byte, count, bodyLen, overhead int64) ([]Blob, error) {
	blobs := make([]Blob, count)
	var offset int64
	for i := range blobs {
		b := &blobs[i]
		copy(b.ID[:], index)
		b.Stored = int64(binary.BigEndian.Uint32(index[sha256.Size:]))
		b.Raw = int64(binary.BigEndian.Uint32(index[sha256.Size+4:]))
		b.Offset = offset
		offset += b.Stored
		if b.Stored < overhead || b.Stored-overhead > b.Raw || b.Raw > MaxBlob {
			return nil, fmt.Errorf("blob of %d bytes stored in %d", b.Raw, b.Stored)
		}
		index = index[indexEntry:]
	}
	if offset != bodyLen {
		return nil, fmt.Errorf("blobs take %d of %d bytes", offset, bodyLen)
	}
	return blobs, nil
}
