package tools

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// difference lists the changes between two definitions: each JSON path with its old and new value, in a
// stable order. Strings and unusual names are quoted, so that none can look like a line of the list.
func difference(before, after Definition) []string {
	var out []string
	compareValues(&out, "", asTree(before), asTree(after))
	return out
}

func asTree(d Definition) any {
	data, err := json.Marshal(d)
	if err != nil { // a schema is not valid JSON
		return fmt.Sprintf("%+v", d)
	}
	v, err := DecodeJSON(data)
	if err != nil {
		return string(data)
	}
	return v
}

func compareValues(out *[]string, at string, before, after any) {
	a, aMap := before.(map[string]any)
	b, bMap := after.(map[string]any)
	if !aMap || !bMap {
		if reflect.DeepEqual(before, after) {
			return
		}
		was, is := formatValue(before), formatValue(after)
		if was == is { // a hidden character, and its code point as text
			was, is = strconv.QuoteToASCII(fmt.Sprint(before)), strconv.QuoteToASCII(fmt.Sprint(after))
		}
		*out = append(*out, fmt.Sprintf("%s: %s → %s", cmp.Or(at, "."), was, is))
		return
	}
	union := maps.Clone(a)
	maps.Copy(union, b)
	for _, k := range slices.Sorted(maps.Keys(union)) {
		x, inOld := a[k]
		y, inNew := b[k]
		path := strings.TrimPrefix(at+"."+formatName(k), ".")
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

// plainName matches names that a path contains without quotation marks.
var plainName = regexp.MustCompile(`^[\w$-]+$`)

func formatName(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return formatValue(name)
}

func formatValue(v any) string {
	if s, ok := v.(string); ok {
		return strconv.QuoteToGraphic(text.Printable(s))
	}
	data, err := EncodeJSON(v)
	if err != nil {
		return "?"
	}
	return text.Printable(strings.TrimSpace(string(data)))
}
