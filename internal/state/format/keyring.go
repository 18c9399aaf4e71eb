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
	Current []byte   // of what is written; empty: it is in the clear
	Old     [][]byte // of what was written before, and can still be read
}

// A locked object begins with lockMagic and the id of its key; a nonce, the content and a tag follow,
// as AES-256-GCM makes them. HEAD, pins and manifests are locked, and in packs each blob and the index;
// what is compressed is so before. Ids of blobs are in locked objects only, so that nobody can ask the
// bucket whether a tenant has some content. In the clear are the names of tenants and workspaces,
// numbers of generations, sizes and times of objects, and the notes of collections, which hold keys of objects.
//
// Nonces are random, 96 bits; a key may lock 2^32 blobs and objects.
const (
	encryptedMagic     = "cflock1\n"
	KeyIDLength        = 8 // hexadecimal digits
	gcmOverhead        = 12 + 16
	EncryptionOverhead = len(encryptedMagic) + KeyIDLength + gcmOverhead
)

// Key locks what a tenant stores.
type Key struct {
	ID   string
	aead cipher.AEAD
}

// Encrypt appends plain, encrypted, to dst. It can be opened with the same identity only.
func (k *Key) Encrypt(dst, plain, identity []byte) []byte {
	return k.aead.Seal(dst, nil, plain, identity) //nolint:gosec // G407: the cipher makes a random nonce
}

// Decrypt returns what seal encrypted.
func (k *Key) Decrypt(data, identity []byte) ([]byte, error) {
	return k.aead.Open(nil, nil, data, identity)
}

// Keyring is the keys of one tenant.
type Keyring struct {
	tenant  string
	Current *Key // nil: what is written is in the clear
	all     map[string]*Key
}

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
	return &Key{hex.EncodeToString(derive("id", KeyIDLength/2)), aead}
}

// KeyID names the key that is derived from a tenant's secret.
func KeyID(tenant string, secret []byte) string { return newKey(tenant, secret).ID }

// CurrentID names the key of what is written; empty: none.
func (r *Keyring) CurrentID() string {
	if r.Current == nil {
		return ""
	}
	return r.Current.ID
}

// Find returns the key of an id. what is for the error, which wraps ErrKey.
func (r *Keyring) Find(id, what string) (*Key, error) {
	if k := r.all[id]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("%s: %w: it is encrypted with the key %q, which tenant %s does not have here; "+
		"give its secret in workspaces.encryption or tenants.%s.encryption (key_file, or old_key_files)", what, ErrKey, id, r.tenant, r.tenant)
}

// Encrypt encrypts an object, which can be unlocked as the same thing only.
func (r *Keyring) Encrypt(what string, data []byte) []byte {
	if r.Current == nil {
		return data
	}
	out := make([]byte, 0, len(data)+EncryptionOverhead)
	out = append(append(out, encryptedMagic...), r.Current.ID...)
	return r.Current.Encrypt(out, data, []byte(what))
}

// Decrypt returns what lock was given, and the id of the key; objects in the clear as they are.
func (r *Keyring) Decrypt(what string, data []byte) (plain []byte, id string, err error) {
	if !bytes.HasPrefix(data, []byte(encryptedMagic)) {
		return data, "", nil
	}
	if len(data) < EncryptionOverhead {
		return nil, "", fmt.Errorf("%s: %w: %d bytes", what, objects.ErrCorrupt, len(data))
	}
	id = string(data[len(encryptedMagic) : len(encryptedMagic)+KeyIDLength])
	locked := data[len(encryptedMagic)+KeyIDLength:]
	k, err := r.Find(id, what)
	if err != nil {
		for _, k := range r.all {
			if _, failed := k.aead.Open(nil, nil, locked, []byte(what)); failed == nil {
				err = fmt.Errorf("%s: %w: the key %s has encrypted it, and it names %q", what, objects.ErrCorrupt, k.ID, id)
			}
		}
		return nil, id, err
	}
	if plain, err = k.aead.Open(nil, nil, locked, []byte(what)); err != nil {
		return nil, id, fmt.Errorf("%s: %w: it is not what the key %s has encrypted", what, objects.ErrCorrupt, id)
	}
	return plain, id, nil
}
