package tools

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// difference lists the changes between two definitions: JSON paths with the old and the new value, in a
// stable order. Strings are quoted, so that no text can pass for a line of the list.
func difference(before, after Definition) []string {
	var out []string
	compareValues(&out, "", asTree(before), asTree(after))
	return out
}

func asTree(d Definition) any {
	data, err := json.Marshal(d)
	if err != nil { // a schema is not valid JSON
		return text.Printable(fmt.Sprintf("%+v", d))
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return text.Printable(string(data))
	}
	return v
}

func compareValues(out *[]string, at string, before, after any) {
	a, aMap := before.(map[string]any)
	b, bMap := after.(map[string]any)
	if !aMap || !bMap {
		if was, is := formatValue(before), formatValue(after); was != is {
			*out = append(*out, fmt.Sprintf("%s: %s → %s", cmp.Or(at, "."), was, is))
		}
		return
	}
	keys := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		x, inOld := a[k]
		y, inNew := b[k]
		path := strings.TrimPrefix(at+"."+text.Printable(k), ".")
		switch {
		case !inOld:
			*out = append(*out, fmt.Sprintf("+ %s: %s", path, formatValue(y)))
		case !inNew:
			*out = append(*out, fmt.Sprintf("- %s: %s", path, formatValue(x)))
		default:
			compareValues(out, path, x, y)
		}
	}
}

func formatValue(v any) string {
	if s, ok := v.(string); ok {
		return strconv.QuoteToGraphic(text.Printable(s))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return "?"
	}
	return text.Printable(strings.TrimSpace(b.String()))
}
