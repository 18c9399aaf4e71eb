package format

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/objects"
)

// A pack consists of blobs and their index, so that content can be recovered from packs alone. Sizes are in bytes:
//
//	blob… | index: per blob id (32), stored (u32), raw (u32) | number of blobs (u32) | magic (8)
//
// The last blob of this index is a salt, see NewSalt. Packs of earlier releases have none.
//
// In an encrypted pack, each blob and the index are encrypted separately:
//
//	blob… | encrypted index (28 bytes longer) | key id (8) | number of blobs (u32) | magic (8)
const (
	PackTarget         = 8 << 20  // bytes; a pack is closed before it would exceed this size
	packLimit          = 16 << 20 // bytes; larger packs are corrupt
	packMagic          = "cfpack1\n"
	indexItem          = sha256.Size + 8
	packTail           = 4 + len(packMagic)
	packEncryptedMagic = "cfpackE\n"
	encryptedTail      = packTail + keyIDLength

	MaxBlob      = 4 << 20   // bytes; larger files are cut into chunks
	sampleBlob   = 128 << 10 // bytes; blobs that are not smaller are sampled before compression
	sampleBytes  = 16 << 10  // bytes of each of two samples
	zstdWindow   = 1 << 20   // bytes
	zstdParallel = 4
)

// PackSize returns an upper bound for the size of a pack with n blobs that take body bytes.
func PackSize(body, n int) int { return body + (n+1)*indexItem + gcmOverhead + encryptedTail }

// NewSalt returns a blob without content and with a random id. In the index of an unencrypted pack it makes the pack's
// digest, which is its name, unique: garbage collection may be about to delete a pack with the same content. Encrypted
// packs are unique, because encryption draws random nonces.
func NewSalt() Blob {
	var b Blob
	_, _ = rand.Read(b.ID[:]) // never returns an error
	return b
}

func (b Blob) isSalt() bool { return b.Raw == 0 }

// AppendIndex completes a pack: it appends the index of blobs to body. k encrypts the index; nil means unencrypted.
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

// ReadIndex returns the blobs of a pack that is `size` bytes long, without its salt and with their Pack unset, and the
// id of its key. data is the end of the pack. needed is the minimum size of data; if data is shorter, blobs is nil.
// Content is not verified.
func ReadIndex(data []byte, size int64, keys *Keyring) (blobs []Blob, needed int64, id string, err error) {
	bad := func(format string, args ...any) ([]Blob, int64, string, error) {
		return nil, 0, "", fmt.Errorf("pack of %d bytes: %w: %s", size, objects.ErrCorrupt,
			fmt.Sprintf(format, args...))
	}
	if len(data) < packTail || size > packLimit {
		return bad("no index")
	}
	encrypted, tail, overhead := false, packTail, int64(0)
	switch string(data[len(data)-len(packMagic):]) {
	case packMagic:
	case packEncryptedMagic:
		encrypted, tail, overhead = true, encryptedTail, gcmOverhead
	default:
		return bad("no index")
	}
	count := int64(binary.BigEndian.Uint32(data[len(data)-packTail:]))
	length := count*indexItem + overhead
	if needed = length + int64(tail); needed > size {
		return bad("the index of %d blobs is larger than the pack", count)
	}
	if needed > int64(len(data)) {
		return nil, needed, "", nil
	}
	end := len(data) - tail
	index := data[int64(end)-length : end]
	if encrypted {
		id = string(data[end : end+keyIDLength])
		k, err := keys.Find(id, "a pack")
		if err != nil {
			return nil, 0, id, err
		}
		if index, err = k.Decrypt(index, []byte(packEncryptedMagic)); err != nil {
			return bad("key %s does not decrypt its index", id)
		}
	}
	if blobs, err = parseIndex(index, count, size-needed, overhead); err != nil {
		return bad("%v", err)
	}
	return slices.DeleteFunc(blobs, Blob.isSalt), needed, id, nil
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
			return nil, fmt.Errorf("a blob of %d bytes is stored in %d", b.Raw, b.Stored)
		}
		index = index[indexItem:]
	}
	if offset != bodyLen {
		return nil, fmt.Errorf("the blobs take %d bytes, want %d", offset, bodyLen)
	}
	return blobs, nil
}
