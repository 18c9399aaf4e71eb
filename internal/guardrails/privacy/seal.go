package privacy

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"fmt"
	"time"
)

// sealer encrypts with AES-256-GCM. Its key belongs to one scope.
type sealer struct{ key []byte }

func (s sealer) aead() cipher.AEAD {
	block, err := aes.NewCipher(s.key)
	if err != nil {
		panic(err) // only for a wrong length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // never for AES
	}
	return aead
}

// Seal returns the values of the tokens in texts, encrypted, or nil if there are none. They expire with the tokens.
func (t *Tokens) Seal(texts ...[]byte) ([]byte, error) {
	used := map[string]value{}
	for _, text := range texts {
		for _, token := range tokenForm.FindAll(text, -1) {
			if v, ok := t.lookup(string(token)); ok {
				used[string(token)] = v
			}
		}
	}
	if len(used) == 0 {
		return nil, nil
	}
	plain, err := json.Marshal(used)
	if err != nil {
		return nil, fmt.Errorf("encode the values of tokens: %w", err)
	}
	return t.seal.aead().Seal(nil, nil, plain, nil), nil //nolint:gosec // G407: the cipher makes a random nonce
}

// Open adds the values that Seal returned for the same scope, perhaps in another process. It ignores expired values.
func (t *Tokens) Open(sealed []byte) error {
	if len(sealed) == 0 {
		return nil
	}
	plain, err := t.seal.aead().Open(nil, nil, sealed, nil)
	if err != nil {
		return fmt.Errorf("decrypt the values of tokens: %w: is privacy.key_file the same on all hosts?", err)
	}
	var used map[string]value
	if err := json.Unmarshal(plain, &used); err != nil {
		return fmt.Errorf("decode the values of tokens: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for token, v := range used {
		if time.Now().Before(v.Expires) {
			t.values[token] = v
		}
	}
	return nil
}
