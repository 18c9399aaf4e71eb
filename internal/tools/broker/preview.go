package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/codefleet/codefleet/internal/text"
)

// Bounds of what Shown leaves.
const (
	shownBytes  = 4 << 10        // in all
	shownString = 400 + len("…") // bytes of one string
	shownItems  = 20             // of one list or object
	shownDepth  = 6
)

// secretName is how fields are called whose value nobody has to see to decide about a call.
var secretName = regexp.MustCompile(`(?i)(pass(word|wd|phrase)?|secret|token|api[_-]?key|private[_-]?key|credential|authorization|cookie)s?$`)

// Shown makes arguments fit to be shown to whoever decides about a call: what is called a secret is
// hidden, hidden characters are seen, what is long is cut, and says so. The answer is JSON of at most
// 4 KiB, whatever the arguments are.
func Preview(args json.RawMessage) json.RawMessage {
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		v = fmt.Sprintf("(%d bytes that are no JSON)", len(args))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(shown(v, shownDepth))
	if out := bytes.TrimSpace(b.Bytes()); err == nil && len(out) <= shownBytes {
		return out
	}
	return json.RawMessage(fmt.Sprintf(`"(%d bytes, too many to be shown)"`, len(args)))
}

func shown(v any, depth int) any {
	switch v := v.(type) {
	case string:
		return shownText(v)
	case json.Number:
		return json.RawMessage(cutNumber(v.String()))
	case []any:
		if depth == 0 {
			return fmt.Sprintf("(a list of %d)", len(v))
		}
		out := make([]any, 0, min(len(v), shownItems+1))
		for _, item := range v[:min(len(v), shownItems)] {
			out = append(out, shown(item, depth-1))
		}
		if more := len(v) - shownItems; more > 0 {
			out = append(out, fmt.Sprintf("(%d more)", more))
		}
		return out
	case map[string]any:
		if depth == 0 {
			return fmt.Sprintf("(an object of %d)", len(v))
		}
		out := make(map[string]any, min(len(v), shownItems+1))
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i == shownItems {
				out["…"] = fmt.Sprintf("(%d more)", len(v)-shownItems)
				break
			}
			if secretName.MatchString(name) && v[name] != nil {
				out[shownText(name)] = "(hidden)"
			} else {
				out[shownText(name)] = shown(v[name], depth-1)
			}
		}
		return out
	}
	return v
}

func shownText(s string) string {
	short := text.Truncate(s, shownString)
	if short != s {
		short += fmt.Sprintf(" (%d bytes)", len(s))
	}
	return text.Printable(short)
}

// cutNumber keeps a number of a million digits from being shown.
func cutNumber(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf(`"%s… (%d digits)"`, s[:40], len(s))
	}
	return s
}
