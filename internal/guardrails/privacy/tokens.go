package privacy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"
)

// Tokens replaces values with tokens such as "[EMAIL_3f9c21a07b44]", and tokens with values. The same value has the
// same token in one scope. Nobody who lacks the scope's key can compute or guess a token. It is safe for concurrent use.
type Tokens struct {
	detector *Detector
	key      []byte

	mu     sync.Mutex
	values map[string]string // by token
}

// NewTokens returns the tokens of a scope, such as one task of one tenant. The key is secret and differs by scope: see
// ScopeKey.
func NewTokens(d *Detector, key []byte) *Tokens {
	return &Tokens{detector: d, key: key, values: map[string]string{}}
}

// ScopeKey derives the key of a scope from the fleet's key with HMAC-SHA256.
func ScopeKey(fleetKey []byte, scope ...string) []byte {
	h := hmac.New(sha256.New, fleetKey)
	for _, s := range scope {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return h.Sum(nil)
}

// Replace returns text with a token in place of each value.
func (t *Tokens) Replace(text string) string { return t.put(text, t.detector.Find(text)) }

func (t *Tokens) put(text string, spans []Span) string {
	if len(spans) == 0 {
		return text
	}
	var b strings.Builder
	from := 0
	for _, s := range spans {
		b.WriteString(text[from:s.Start])
		b.WriteString(t.token(s.Type, text[s.Start:s.End]))
		from = s.End
	}
	b.WriteString(text[from:])
	return b.String()
}

// The first digits of a token's HMAC are enough to tell the values of a scope apart. More are used if they collide.
const tokenDigits = 12

func (t *Tokens) token(kind Type, value string) string {
	sum := hex.EncodeToString(ScopeKey(t.key, string(kind), value))
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := tokenDigits; ; n++ {
		token := "[" + strings.ToUpper(string(kind)) + "_" + sum[:n] + "]"
		if old, ok := t.values[token]; !ok || old == value {
			t.values[token] = value
			return token
		}
	}
}

var tokenForm = regexp.MustCompile(`\[[A-Z]+_[0-9a-f]{12,64}\]`)

// Restore returns text with the value in place of each token of this scope. Other tokens stay as they are.
func (t *Tokens) Restore(text string) string {
	return tokenForm.ReplaceAllStringFunc(text, func(token string) string {
		t.mu.Lock()
		defer t.mu.Unlock()
		if v, ok := t.values[token]; ok {
			return v
		}
		return token
	})
}
