package repo

import (
	"bytes"
	"encoding/json"
	"maps"
	"path"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/statedoc"
	"github.com/codefleet/codefleet/internal/text"
)

// mergeJSON merges their and our version of a state document by top-level keys. It returns nil if they do not merge.
func (m *merger) mergeJSON(base, theirs, ours *format.Entry) (*format.Entry, error) {
	small := func(e *format.Entry) bool { return e != nil && e.Kind == format.KindFile && e.Size <= format.MaxBlob }
	if !small(theirs) || !small(ours) || base != nil && !small(base) || !m.mergesByKey(ours.Path) {
		return nil, nil
	}
	mode, ok := mergeMode(base, theirs, ours)
	if !ok {
		return nil, nil
	}
	var objects [3]map[string]json.RawMessage
	for i, e := range []*format.Entry{base, theirs, ours} {
		if e == nil {
			continue
		}
		data, err := m.read(e)
		if err != nil {
			return nil, err
		}
		if statedoc.IsYAML(ours.Path) { // ToJSON would refuse JSON that merges, although programs cannot decode it
			if data, err = statedoc.ToJSON(ours.Path, data); err != nil {
				return nil, nil //nolint:nilerr // an ordinary conflict
			}
		}
		if json.Unmarshal(data, &objects[i]) != nil || objects[i] == nil && i > 0 {
			return nil, nil //nolint:nilerr // not an object: an ordinary conflict
		}
	}
	keys, ok := mergeKeys(objects[0], objects[1], objects[2])
	if !ok {
		return nil, nil
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // values keep their notation
	err := enc.Encode(keys)
	data := out.Bytes()
	if err == nil && statedoc.IsYAML(ours.Path) {
		data, err = statedoc.FromJSON(ours.Path, data)
	} else if err == nil {
		data = text.IndentJSON(data, "  ", format.MaxBlob)
	}
	if err != nil || len(data) > format.MaxBlob {
		return nil, nil //nolint:nilerr // an ordinary conflict
	}
	merged := *ours
	merged.Mode = mode
	return m.write(&merged, data)
}

// mergeMode returns the mode that one side changed. It returns false if both changed it to different ones. Without a
// base, both sides chose a mode, and ours is as good as theirs.
func mergeMode(base, theirs, ours *format.Entry) (mode uint32, ok bool) {
	switch {
	case base == nil, theirs.Mode == base.Mode, theirs.Mode == ours.Mode:
		return ours.Mode, true
	case ours.Mode == base.Mode:
		return theirs.Mode, true
	default:
		return 0, false
	}
}

// mergesByKey reports whether p is a state document: the default document, state.json, state.yaml, or a JSON or YAML
// file below state/.
func (m *merger) mergesByKey(p string) bool {
	switch p {
	case m.document, "state.json", "state.yaml":
		return true
	}
	return strings.HasPrefix(p, "state/") && (path.Ext(p) == ".json" || statedoc.IsYAML(p))
}

// mergeKeys is the three-way merge of objects. It returns false if both sides changed the same key, even to the same
// value.
func mergeKeys(base, theirs, ours map[string]json.RawMessage) (map[string]json.RawMessage, bool) {
	merged := maps.Clone(theirs)
	keys := maps.Clone(base)
	if keys == nil {
		keys = map[string]json.RawMessage{}
	}
	maps.Copy(keys, ours)
	for key := range keys {
		b, t, o := base[key], theirs[key], ours[key]
		switch {
		case sameJSON(b, o): // we changed nothing
		case !sameJSON(b, t):
			return nil, false
		case o == nil:
			delete(merged, key)
		default:
			merged[key] = o
		}
	}
	return merged, true
}

// sameJSON reports whether programs decode two values to the same: white space, the order of an object's keys, escapes
// and the notation of a number do not count, because a program that saves one key writes the whole document in its own
// notation. Nil stands for a missing value.
func sameJSON(a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if bytes.Equal(a, b) {
		return true
	}
	x, y := decoded(a), decoded(b)
	// U+FFFD stands for any half of a surrogate pair.
	return x != nil && bytes.Equal(x, y) && !bytes.Contains(x, []byte("\ufffd"))
}

// decoded returns a value in one notation. It returns nil if the value is not JSON.
func decoded(value json.RawMessage) []byte {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	data, err := json.Marshal(plainNumbers(v))
	if err != nil {
		return nil
	}
	return data
}

// plainNumbers replaces the numbers in v by those that Python's decoder returns: exact integers, and floats of 64 bits.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = plainNumbers(item)
		}
	case []any:
		for i, item := range v {
			v[i] = plainNumbers(item)
		}
	case json.Number:
		if v == "-0" {
			return json.Number("0")
		}
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return json.Number(strconv.FormatFloat(f, 'e', -1, 64)) // has an exponent, unlike an integer
		}
	}
	return v
}
