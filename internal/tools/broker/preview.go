package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// Limits of Preview.
const (
	previewBytes  = 4 << 10        // of the whole preview
	previewString = 400 + len("…") // bytes per string
	previewItems  = 20             // per list or object
	previewDepth  = 6
)

// secretName matches names of fields whose values are redacted.
var secretName = regexp.MustCompile(`(?i)(pass(word|wd|phrase)?|secret|token|api[_-]?key|private[_-]?key|` +
	`credential|authorization|cookie)s?$`)

// Preview returns arguments for the person who decides about a call, as JSON of at most 4 KiB. It redacts
// fields that are named like secrets, spells out hidden characters, and truncates long values.
func Preview(args json.RawMessage) json.RawMessage {
	v, err := tools.DecodeJSON(args)
	if err != nil {
		v = fmt.Sprintf("(%d bytes of invalid JSON)", len(args))
	}
	out, err := tools.EncodeJSON(previewValue(v, previewDepth))
	if out = bytes.TrimSpace(out); err == nil && len(out) <= previewBytes {
		return out
	}
	return fmt.Appendf(nil, `"(%d bytes, too long to preview)"`, len(args))
}

func previewValue(v any, depth int) any {
	switch v := v.(type) {
	case string:
		return previewText(v)
	case json.Number:
		return json.RawMessage(truncateNumber(v.String()))
	case []any:
		if depth == 0 {
			return fmt.Sprintf("(list of length %d)", len(v))
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
			return fmt.Sprintf("(object of size %d)", len(v))
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

// truncateNumber returns the number as JSON, as a truncated string if it has very many digits.
func truncateNumber(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf(`"%s… (%d digits)"`, s[:40], len(s))
	}
	return s
}
