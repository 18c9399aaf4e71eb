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
	previewBytes  = 4 << 10        // in all
	previewString = 400 + len("…") // bytes of one string
	previewItems  = 20             // of one list or object
	previewDepth  = 6
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
	err := enc.Encode(previewValue(v, previewDepth))
	if out := bytes.TrimSpace(b.Bytes()); err == nil && len(out) <= previewBytes {
		return out
	}
	return json.RawMessage(fmt.Sprintf(`"(%d bytes, too many to be shown)"`, len(args)))
}

func previewValue(v any, depth int) any {
	switch v := v.(type) {
	case string:
		return previewText(v)
	case json.Number:
		return json.RawMessage(truncateNumber(v.String()))
	case []any:
		if depth == 0 {
			return fmt.Sprintf("(a list of %d)", len(v))
		}
		out := make([]any, 0, min(len(v), previewItems+1))
		for _, item := range v[:min(len(v), previewItems)] {
			out = append(out, previewValue(item, depth-1))
		}
		if more := len(v) - previewItems; more > 0 {
			out = append(out, fmt.Sprintf("(%d more)", more))
		}
		return out
	case map[string]any:
		if depth == 0 {
			return fmt.Sprintf("(an object of %d)", len(v))
		}
		out := make(map[string]any, min(len(v), previewItems+1))
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i == previewItems {
				out["…"] = fmt.Sprintf("(%d more)", len(v)-previewItems)
				break
			}
			if secretName.MatchString(name) && v[name] != nil {
				out[previewText(name)] = "(hidden)"
			} else {
				out[previewText(name)] = previewValue(v[name], depth-1)
			}
		}
		return out
	}
	return v
}

func previewText(s string) string {
	short := text.Truncate(s, previewString)
	if short != s {
		short += fmt.Sprintf(" (%d bytes)", len(s))
	}
	return text.Printable(short)
}

// cutNumber keeps a number of a million digits from being shown.
func truncateNumber(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf(`"%s… (%d digits)"`, s[:40], len(s))
	}
	return s
}
