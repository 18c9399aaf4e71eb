package state

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
	lockMagic    = "cflock1\n"
	keyIDLen     = 8 // hexadecimal digits
	lockTag      = 12 + 16
	lockOverhead = len(lockMagic) + keyIDLen + lockTag
)

// key locks what a tenant stores.
type key struct {
	id   string
	aead cipher.AEAD
}

// seal appends plain, encrypted, to dst. It can be opened as the same thing only.
func (k *key) seal(dst, plain, what []byte) []byte {
	return k.aead.Seal(dst, nil, plain, what) //nolint:gosec // G407: the cipher makes a random nonce
}

// keyring is the keys of one tenant.
type keyring struct {
	tenant  string
	current *key // nil: what is written is in the clear
	all     map[string]*key
}

func newKeyring(tenant string, s Secrets) *keyring {
	r := &keyring{tenant: tenant, all: map[string]*key{}}
	for _, secret := range s.Old {
		k := newKey(tenant, secret)
		r.all[k.id] = k
	}
	if len(s.Current) > 0 {
		r.current = newKey(tenant, s.Current)
		r.all[r.current.id] = r.current
	}
	return r
}

func newKey(tenant string, secret []byte) *key {
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
	return &key{hex.EncodeToString(derive("id", keyIDLen/2)), aead}
}

// KeyID names the key that is derived from a tenant's secret.
func KeyID(tenant string, secret []byte) string { return newKey(tenant, secret).id }

// keys returns the keys of a tenant.
func (s *Store) keys(tenant string) *keyring {
	if r, ok := s.rings.Load(tenant); ok {
		return r.(*keyring) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	var secrets Secrets
	if s.opts.Secrets != nil {
		secrets = s.opts.Secrets(tenant)
	}
	r, _ := s.rings.LoadOrStore(tenant, newKeyring(tenant, secrets))
	return r.(*keyring) //nolint:errcheck,forcetypeassert // nothing else is stored
}

// currentID names the key of what is written; empty: none.
func (r *keyring) currentID() string {
	if r.current == nil {
		return ""
	}
	return r.current.id
}

// find returns the key of an id. what is for the error, which wraps ErrKey.
func (r *keyring) find(id, what string) (*key, error) {
	if k := r.all[id]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("%s: %w: it is encrypted with the key %q, which tenant %s does not have here; "+
		"give its secret in workspaces.encryption or tenants.%s.encryption (key_file, or old_key_files)", what, ErrKey, id, r.tenant, r.tenant)
}

// lock encrypts an object, which can be unlocked as the same thing only.
func (r *keyring) lock(what string, data []byte) []byte {
	if r.current == nil {
		return data
	}
	out := make([]byte, 0, len(data)+lockOverhead)
	out = append(append(out, lockMagic...), r.current.id...)
	return r.current.seal(out, data, []byte(what))
}

// unlock returns what lock was given, and the id of the key; objects in the clear as they are.
func (r *keyring) unlock(what string, data []byte) (plain []byte, id string, err error) {
	if !bytes.HasPrefix(data, []byte(lockMagic)) {
		return data, "", nil
	}
	if len(data) < lockOverhead {
		return nil, "", fmt.Errorf("%s: %w: %d bytes", what, objects.ErrCorrupt, len(data))
	}
	id = string(data[len(lockMagic) : len(lockMagic)+keyIDLen])
	locked := data[len(lockMagic)+keyIDLen:]
	k, err := r.find(id, what)
	if err != nil {
		for _, k := range r.all {
			if _, failed := k.aead.Open(nil, nil, locked, []byte(what)); failed == nil {
				err = fmt.Errorf("%s: %w: the key %s has encrypted it, and it names %q", what, objects.ErrCorrupt, k.id, id)
			}
		}
		return nil, id, err
	}
	if plain, err = k.aead.Open(nil, nil, locked, []byte(what)); err != nil {
		return nil, id, fmt.Errorf("%s: %w: it is not what the key %s has encrypted", what, objects.ErrCorrupt, id)
	}
	return plain, id, nil
}

// openBlob returns the verified content of a stored blob, decompressed into scratch if need be.
func (s *Store) openBlob(tenant string, b *blob, stored, scratch []byte) ([]byte, error) {
	if b.Pack.Key == "" {
		return s.codec.open(b, stored, scratch)
	}
	k, err := s.keys(tenant).find(b.Pack.Key, packKey(tenant, b.Pack.ID))
	if err != nil {
		return nil, err
	}
	plain, err := k.aead.Open(nil, nil, stored, b.ID[:])
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w: it is not what the key %s has encrypted", b.ID, objects.ErrCorrupt, k.id)
	}
	return s.codec.open(b, plain, scratch)
}
