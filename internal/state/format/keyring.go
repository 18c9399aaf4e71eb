package format

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/codefleet/codefleet/internal/objects"
)

// Secrets are what a tenant's keys are derived from, each at least 32 random bytes.
type Secrets struct {
	Current []byte   // encrypts what is written; empty: unencrypted
	Old     [][]byte // decrypt what was written before
}

// An encrypted object begins with encryptedMagic and the id of its key; a nonce, the content and a tag follow, of
// AES-256-GCM. HEAD, pins and manifests are encrypted, and in packs each blob and the index, all after compression.
// Digests of blobs are in encrypted objects only, so that the bucket does not reveal whether a tenant has some
// content. Unencrypted are the names of tenants and workspaces, generations, sizes and times of objects, and the
// marks of garbage collections, which hold keys of objects.
//
// Nonces are random, 96 bits; a key may encrypt 2^32 blobs and objects.
const (
	encryptedMagic     = "cflock1\n"
	keyIDLength        = 8 // hexadecimal digits
	gcmOverhead        = 12 + 16
	encryptionOverhead = len(encryptedMagic) + keyIDLength + gcmOverhead
)

// Key encrypts what a tenant stores.
type Key struct {
	ID   string
	aead cipher.AEAD
}

// Encrypt appends plain, encrypted, to dst. Only the same identity decrypts it.
func (k *Key) Encrypt(dst, plain, identity []byte) []byte {
	return k.aead.Seal(dst, nil, plain, identity) //nolint:gosec // G407: the cipher makes a random nonce
}

// Decrypt returns what Encrypt encrypted with the same identity.
func (k *Key) Decrypt(data, identity []byte) ([]byte, error) {
	return k.aead.Open(nil, nil, data, identity)
}

// Keyring is the keys of one tenant.
type Keyring struct {
	Current *Key // encrypts what is written; nil: unencrypted

	tenant string
	all    map[string]*Key // by id
}

// NewKeyring derives the keys of a tenant.
func NewKeyring(tenant string, s Secrets) *Keyring {
	r := &Keyring{tenant: tenant, all: map[string]*Key{}}
	for _, secret := range s.Old {
		k := newKey(tenant, secret)
		r.all[k.ID] = k
	}
	if len(s.Current) > 0 {
		r.Current = newKey(tenant, s.Current)
		r.all[r.Current.ID] = r.Current
	}
	return r
}

func newKey(tenant string, secret []byte) *Key {
	derive := func(purpose string, length int) []byte {
		out, err := hkdf.Key(sha256.New, secret, nil, "codefleet workspaces 1 "+purpose+" "+tenant, length)
		if err != nil {
			panic(err) // constant lengths
		}
		return out
	}
	block, err := aes.NewCipher(derive("key", 32))
	if err != nil {
		panic(err) // of the right length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // of the right block size
	}
	return &Key{hex.EncodeToString(derive("id", keyIDLength/2)), aead}
}

// KeyID names the key that is derived from a tenant's secret.
func KeyID(tenant string, secret []byte) string { return newKey(tenant, secret).ID }

// CurrentID returns the id of the current key, or "".
func (r *Keyring) CurrentID() string {
	if r.Current == nil {
		return ""
	}
	return r.Current.ID
}

// Find returns the key of an id, or an error about what that wraps ErrKey.
func (r *Keyring) Find(id, what string) (*Key, error) {
	if k := r.all[id]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("%s: %w: it is encrypted with the key %q, which tenant %s does not have here; "+
		"give its secret in workspaces.encryption or tenants.%s.encryption (key_file, or old_key_files)",
		what, ErrKey, id, r.tenant, r.tenant)
}

// encrypt returns an object as it is stored. It decrypts with the same identity only.
func (r *Keyring) encrypt(identity string, data []byte) []byte {
	if r.Current == nil {
		return data
	}
	out := make([]byte, 0, len(data)+encryptionOverhead)
	out = append(append(out, encryptedMagic...), r.Current.ID...)
	return r.Current.Encrypt(out, data, []byte(identity))
}

// decrypt returns the content of a stored object, and the id of its key; unencrypted objects as they are.
func (r *Keyring) decrypt(identity string, data []byte) (plain []byte, id string, err error) {
	if !bytes.HasPrefix(data, []byte(encryptedMagic)) {
		return data, "", nil
	}
	if len(data) < encryptionOverhead {
		return nil, "", fmt.Errorf("%s: %w: %d bytes", identity, objects.ErrCorrupt, len(data))
	}
	id = string(data[len(encryptedMagic) : len(encryptedMagic)+keyIDLength])
	body := data[len(encryptedMagic)+keyIDLength:]
	k, err := r.Find(id, identity)
	if err != nil {
		for _, k := range r.all {
			if _, failed := k.Decrypt(body, []byte(identity)); failed == nil {
				err = fmt.Errorf("%s: %w: the key %s decrypts it, and it names %q",
					identity, objects.ErrCorrupt, k.ID, id)
			}
		}
		return nil, id, err
	}
	if plain, err = k.Decrypt(body, []byte(identity)); err != nil {
		return nil, id, fmt.Errorf("%s: %w: the key %s does not decrypt it", identity, objects.ErrCorrupt, id)
	}
	return plain, id, nil
}
