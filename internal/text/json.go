package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// IndentModerately is like IndentJSON. The limit is the given one, or eight times the size of data if that is more.
func IndentModerately(data []byte, indent string, limit int) []byte {
	return IndentJSON(data, indent, max(limit, 8*len(data)))
}

// NotJSON returns an error of json.Unmarshal in words for a person. The decoder's own text about a syntax error names
// what its parser looks for.
func NotJSON(err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("it is not JSON (byte %d)", e.Offset)
	}
	return err
}

// IndentJSON returns valid JSON with each value on a separate line. It returns data unchanged if the indented
// form could exceed limit bytes, because indenting deeply nested values makes JSON thousands of times as long.
func IndentJSON(data []byte, indent string, limit int) []byte {
	var out bytes.Buffer
	if IndentedSize(data, len(indent)) > limit || json.Indent(&out, data, "", indent) != nil {
		return data
	}
	return out.Bytes()
}

// IndentedSize returns an upper bound for the size of valid JSON, in bytes, when it is indented by n bytes per
// level.
func IndentedSize(data []byte, n int) int {
	size, depth, inString := len(data), 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++ // the escaped character
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			depth++
			size += 1 + n*depth
		case c == '}', c == ']':
			depth--
			size += 1 + n*depth
		case c == ',':
			size += 1 + n*depth
		case c == ':':
			size++
		}
	}
	return size
}
