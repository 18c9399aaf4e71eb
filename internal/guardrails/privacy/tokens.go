package privacy

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tokens replaces values with tokens such as "[EMAIL_3f9c21a07b44]", and tokens with values. In one scope, such as a
// task, the same value has the same token. A token is an HMAC: without the scope's key it cannot be guessed. A nil
// Tokens replaces nothing. It is safe for concurrent use.
type Tokens struct {
	Mode Mode

	detector   *Detector
	recognizer *Recognizer // may be nil
	key        []byte
	seal       sealer
	ttl        time.Duration

	mu     sync.Mutex
	values map[string]value // by token
}

// value is what a token stands for.
type value struct {
	Text    string    `json:"text"`
	Number  bool      `json:"number,omitempty"` // a JSON number, not a string
	Expires time.Time `json:"expires"`
}

// Broker reports whether programs get tokens instead of values.
func (t *Tokens) Broker() bool { return t != nil && t.Mode == Broker }

// Replace returns a text with a token in place of each value.
func (t *Tokens) Replace(ctx context.Context, text string) string {
	if t == nil {
		return text
	}
	recognized, _ := t.recognize(ctx, text) // a text that was not judged is replaced whole
	return t.replaceSpans(text, t.find(text, recognized[text]))
}

// ReplaceAtOnce is like Replace, but sends no request: if there is a recognizer, a text that contains letters is
// replaced whole.
func (t *Tokens) ReplaceAtOnce(text string) string {
	if t == nil {
		return text
	}
	if t.recognizer != nil && mayHaveNames(text) {
		return t.replaceSpans(text, []Span{{0, len(text), unchecked}})
	}
	return t.replaceSpans(text, t.find(text, nil))
}

// ReplaceText is like ReplaceJSON if the text is a JSON object or list, and otherwise like Replace.
func (t *Tokens) ReplaceText(ctx context.Context, text string) string {
	if t != nil && mayBeJSON(text) {
		if out, err := t.ReplaceJSON(ctx, json.RawMessage(strings.TrimSpace(text))); err == nil {
			return string(out)
		}
	}
	return t.Replace(ctx, text)
}

// ReplaceTexts is ReplaceText for each of texts, with few requests to the recognizer.
func (t *Tokens) ReplaceTexts(ctx context.Context, texts ...string) []string {
	out := slices.Clone(texts)
	if t == nil {
		return out
	}
	var plain []string
	for i, text := range texts {
		if mayBeJSON(text) {
			out[i] = t.ReplaceText(ctx, text)
		} else {
			plain = append(plain, text)
		}
	}
	replaced := map[string]string{}
	for some := range slices.Chunk(plain, recognizedAtOnce) {
		recognized, _ := t.recognize(ctx, some...) // texts that were not judged are replaced whole
		for _, text := range some {
			replaced[text] = t.replaceSpans(text, t.find(text, recognized[text]))
		}
	}
	for i, text := range texts {
		if hidden, ok := replaced[text]; ok {
			out[i] = hidden
		}
	}
	return out
}

func mayBeJSON(text string) bool {
	trimmed := strings.TrimSpace(text)
	return trimmed != "" && strings.Contains("{[", trimmed[:1])
}

// tokenForm matches a token. The detector's types have only letters.
var tokenForm = regexp.MustCompile(`\[[A-Z]{1,20}_[0-9a-f]{12,64}\]`)

// find returns the values in text, in order, among them the names that the recognizer found. A token is not part of a
// value.
func (t *Tokens) find(text string, names []Span) []Span {
	found := longest(text, append(t.detector.Find(text), names...))
	if len(found) == 0 || strings.IndexByte(text, '[') < 0 {
		return found
	}
	tokens := tokenForm.FindAllStringIndex(text, -1)
	var kept []Span
	for _, f := range found { // both lists are in order
		for len(tokens) > 0 && tokens[0][1] <= f.Start {
			tokens = tokens[1:]
		}
		for f.Type != unchecked && len(tokens) > 0 && tokens[0][0] < f.End {
			if before := trim(text, Span{f.Start, tokens[0][0], f.Type}); before.Start < before.End {
				kept = append(kept, before)
			}
			if f = trim(text, Span{tokens[0][1], f.End, f.Type}); f.Start >= f.End {
				break // the token may also be part of the next span
			}
			tokens = tokens[1:]
		}
		if f.Start < f.End {
			kept = append(kept, f)
		}
	}
	return kept
}

// replaceSpans returns a text with a token in place of each span.
func (t *Tokens) replaceSpans(text string, spans []Span) string {
	if len(spans) == 0 {
		return text
	}
	var b strings.Builder
	from := 0
	for _, s := range spans {
		b.WriteString(text[from:s.Start])
		b.WriteString(t.token(s.Type, value{Text: text[s.Start:s.End]}))
		from = s.End
	}
	b.WriteString(text[from:])
	return b.String()
}

// tokenDigits is the number of digits of the HMAC in a token. If two values of a scope would get the same token, the
// second one gets more digits.
const tokenDigits = 12

// token returns the token of a value, and keeps the value, so that lookup finds it until the token expires.
func (t *Tokens) token(kind Type, v value) string {
	h := hmac.New(sha256.New, t.key)
	for _, s := range []string{string(kind), v.Text} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	if v.Number {
		h.Write([]byte{1})
	}
	sum := hex.EncodeToString(h.Sum(nil))
	v.Expires = time.Now().Add(t.ttl)
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := tokenDigits; ; n++ {
		token := "[" + strings.ToUpper(string(kind)) + "_" + sum[:n] + "]"
		if old, ok := t.values[token]; !ok || old.Text == v.Text && old.Number == v.Number {
			t.values[token] = v
			return token
		}
	}
}

// lookup returns the value of a token, unless it is unknown or has expired.
func (t *Tokens) lookup(token string) (value, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.values[token]
	return v, ok && time.Now().Before(v.Expires)
}

// maxRestored bounds the bytes that RestoreCode and RestoreJSON add to a text: a small text can contain many tokens of
// long values.
const maxRestored = 16 << 20

var errRestored = errors.New("the arguments are too large with the values of their tokens")

// restorer replaces tokens with values, up to maxRestored bytes.
type restorer struct {
	*Tokens
	added int
}

// text returns a text with values in place of tokens.
func (r *restorer) text(text string) string {
	if strings.IndexByte(text, '[') < 0 {
		return text
	}
	return tokenForm.ReplaceAllStringFunc(text, func(token string) string {
		v, ok := r.lookup(token)
		if r.added += len(v.Text); !ok || r.added > maxRestored {
			return token
		}
		return v.Text
	})
}

// RestoreCode returns a Python program with the value in place of each token. Values are escaped: in a string literal
// that is neither raw nor of bytes, a value stands for its own text, whatever it contains, and outside of literals it
// is never an expression with a call. If the mode is not Egress, RestoreCode returns the program unchanged.
func (t *Tokens) RestoreCode(code string) string {
	if t == nil || t.Mode != Egress {
		return code
	}
	added := 0
	return tokenForm.ReplaceAllStringFunc(code, func(token string) string {
		v, ok := t.lookup(token)
		if added += len(v.Text); !ok || added > maxRestored {
			return token
		}
		return pythonEscape(v.Text)
	})
}

// pythonEscape returns a text as it is written in a Python string literal with any quotes, also in an f-string, but not
// in a raw string or in bytes.
func pythonEscape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < 0x80 && class[r]&isAlnum != 0 || strings.ContainsRune("@.+-_ :/", r):
			b.WriteRune(r)
		case r <= 0xffff:
			b.WriteString(`\u` + hex.EncodeToString([]byte{byte(r >> 8), byte(r)}))
		default:
			b.WriteString(`\U` + hex.EncodeToString([]byte{0, byte(r >> 16), byte(r >> 8), byte(r)}))
		}
	}
	return b.String()
}
