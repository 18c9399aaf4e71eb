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
	previewBytes   = 4 << 10        // bytes of the whole preview
	previewString  = 400 + len("…") // bytes per string
	previewItems   = 20             // per list or object
	previewDepth   = 6
	searchedString = 4 << 10  // bytes of a string that are searched for secrets; more than previewString
	searchedTotal  = 64 << 10 // bytes of all strings together that are searched for secrets
)

// secretName matches names of fields whose values are redacted.
var secretName = regexp.MustCompile(`(?i)` + tools.SecretWords + `$`)

// Preview returns arguments for the person who decides about a call, as JSON of at most 4 KiB. It redacts
// fields that are named like secrets, masks what looks like a credential, a card or a mail address (see mask), spells
// out hidden characters, and truncates long values.
func Preview(args json.RawMessage) json.RawMessage {
	v, err := tools.DecodeJSON(args)
	if err != nil {
		v = fmt.Sprintf("(%d bytes of invalid JSON)", len(args))
	}
	out, err := tools.EncodeJSON((&previewer{left: searchedTotal}).value(v, previewDepth))
	if out = bytes.TrimSpace(out); err == nil && len(out) <= previewBytes {
		return out
	}
	return fmt.Appendf(nil, `"(%d bytes, too long to preview)"`, len(args))
}

// previewer makes one preview.
type previewer struct{ left int } // bytes that may still be searched for secrets

func (p *previewer) value(v any, depth int) any {
	switch v := v.(type) {
	case string:
		return p.text(v)
	case json.Number:
		return p.number(v.String())
	case []any:
		if depth == 0 {
			return fmt.Sprintf("(list of length %d)", len(v))
		}
		out := make([]any, 0, min(len(v), previewItems+1))
		for _, item := range v[:min(len(v), previewItems)] {
			out = append(out, p.value(item, depth-1))
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
				out[newName(out, "…")] = fmt.Sprintf("(%d more)", len(v)-previewItems)
				break
			}
			shown := newName(out, p.text(name))
			if secretName.MatchString(name) && v[name] != nil {
				out[shown] = hidden
			} else {
				out[shown] = p.value(v[name], depth-1)
			}
		}
		return out
	}
	return v
}

// newName returns name, with a number if out has that name: masked and truncated names may be equal, and a person must
// see every argument.
func newName(out map[string]any, name string) string {
	unique := name
	for n := 2; ; n++ {
		if _, taken := out[unique]; !taken {
			return unique
		}
		unique = fmt.Sprintf("%s (%d)", name, n)
	}
}

func (p *previewer) text(s string) string {
	short := text.Prefix(s, searchedString)
	if p.left -= len(short); p.left < 0 {
		return fmt.Sprintf("(%d bytes)", len(s))
	}
	short = mask(short)
	if len(short) > previewString || len(s) > searchedString {
		short = text.Truncate(short+"…", previewString) + fmt.Sprintf(" (%d bytes)", len(s))
	}
	return text.Printable(short)
}

// number returns a number, or a string if it has very many digits or is the number of a card.
func (p *previewer) number(s string) any {
	if len(s) > 40 {
		return fmt.Sprintf("%s… (%d digits)", s[:40], len(s))
	}
	if len(s) >= 13 && len(s) <= 19 && isCard(s) {
		return mask(s)
	}
	return json.RawMessage(s)
}
