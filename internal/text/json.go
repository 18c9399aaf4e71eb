package text

import (
	"bytes"
	"encoding/json"
)

// IndentJSON returns valid JSON with each value on a line of its own. It returns data unchanged when the
// indented form would exceed limit bytes: deeply nested values make indented JSON thousands of times as long.
func IndentJSON(data []byte, indent string, limit int) []byte {
	var out bytes.Buffer
	if IndentedSize(data, len(indent)) > limit || json.Indent(&out, data, "", indent) != nil {
		return data
	}
	return out.Bytes()
}

// IndentedSize returns an upper bound, in bytes, of valid JSON indented by n bytes a level.
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
