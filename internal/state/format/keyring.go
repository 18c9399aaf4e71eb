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

// Secrets are the secrets from which a tenant's keys are derived. Each should be at least 32 random bytes.
type Secrets struct {
	Current []byte   // encrypts new objects; empty means no encryption
	Old     [][]byte // decrypt older objects
}

// HEAD, pins and manifests are encrypted as a whole. Such an object begins with encryptedMagic and its key's id; an
// AES-256-GCM nonce, the content and the tag follow. In packs, each blob and the index are encrypted separately (see
// pack.go). Compression precedes encryption. Digests of blobs occur in encrypted objects only, so that the
// bucket does not reveal whether a tenant has certain content. Names of tenants and workspaces, generations, object
// sizes and times are not encrypted, nor are the marks of garbage collection, retained versions and floors, which
// contain nothing but object keys, manifests' names and digests, times and generations.
//
// Nonces are 96 random bits, so a key may encrypt 2^32 blobs and objects.
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

// Encrypt appends the encrypted form of plain to dst. Decrypt needs the same identity.
func (k *Key) Encrypt(dst, plain, identity []byte) []byte {
	return k.aead.Seal(dst, nil, plain, identity) //nolint:gosec // G407: the cipher makes a random nonce
}

// Decrypt returns what Encrypt encrypted with the same identity.
func (k *Key) Decrypt(data, identity []byte) ([]byte, error) {
	return k.aead.Open(nil, nil, data, identity)
}

// Keyring is one tenant's keys.
type Keyring struct {
	Current *Key // encrypts new objects; nil means no encryption

	tenant string
	all    map[string]*Key // by id
}

// NewKeyring derives a tenant's keys.
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
		panic(err) // the key has the right length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the right block size
	}
	return &Key{hex.EncodeToString(derive("id", keyIDLength/2)), aead}
}

// KeyID returns the id of the key that is derived from a tenant's secret.
func KeyID(tenant string, secret []byte) string { return newKey(tenant, secret).ID }

// CurrentID returns the current key's id, or "" without encryption.
func (r *Keyring) CurrentID() string {
	if r.Current == nil {
		return ""
	}
	return r.Current.ID
}

// Find returns the key with an id. If r does not have it, Find returns an error that wraps ErrKey and names object, the
// object to decrypt.
func (r *Keyring) Find(id, object string) (*Key, error) {
	if k := r.all[id]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("decrypt %s: %w %q of tenant %s: configure its secret in workspaces.encryption or "+
		"tenants.%s.encryption (key_file or old_key_files)", object, ErrKey, id, r.tenant, r.tenant)
}

// encrypt returns the stored form of an object. decrypt needs the same identity.
func (r *Keyring) encrypt(identity string, data []byte) []byte {
	if r.Current == nil {
		return data
	}
	out := make([]byte, 0, len(data)+encryptionOverhead)
	out = append(append(out, encryptedMagic...), r.Current.ID...)
	return r.Current.Encrypt(out, data, []byte(identity))
}

// decrypt returns a stored object's content and its key's id. It returns unencrypted data unchanged, with an empty id.
func (r *Keyring) decrypt(identity string, data []byte) (plain []byte, id string, err error) {
	if !bytes.HasPrefix(data, []byte(encryptedMagic)) {
		return data, "", nil
	}
	if len(data) < encryptionOverhead {
		return nil, "", fmt.Errorf("decrypt %s: %w: only %d bytes", identity, objects.ErrCorrupt, len(data))
	}
	id = string(data[len(encryptedMagic) : len(encryptedMagic)+keyIDLength])
	body := data[len(encryptedMagic)+keyIDLength:]
	k, err := r.Find(id, identity)
	if err != nil {
		for _, k := range r.all { // if one of them fits, the id is damaged
			if _, decryptErr := k.Decrypt(body, []byte(identity)); decryptErr == nil {
				err = fmt.Errorf("decrypt %s: %w: it names the key %q, but key %s decrypts it",
					identity, objects.ErrCorrupt, id, k.ID)
			}
		}
		return nil, id, err
	}
	if plain, err = k.Decrypt(body, []byte(identity)); err != nil {
		return nil, id, fmt.Errorf("decrypt %s: %w: key %s does not decrypt it", identity, objects.ErrCorrupt, id)
	}
	return plain, id, nil
}
