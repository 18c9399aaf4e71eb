// Package indent writes JSON that others sent for people to read, without letting it grow: values
// that are nested deep make indented JSON thousands of times as long. The key function is JSON.
package indent

import (
	"bytes"
	"encoding/json"
)

// JSON returns valid JSON with each value on a line of its own, or as it is, where that would have
// more than most bytes.
func JSON(data []byte, indent string, most int) []byte {
	var out bytes.Buffer
	if Size(data, len(indent)) > most || json.Indent(&out, data, "", indent) != nil {
		return data
	}
	return out.Bytes()
}

// Size is about how many bytes valid JSON has when it is indented by n bytes a level: a few more
// than it comes to.
func Size(data []byte, n int) int {
	size, depth, text := len(data), 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++ // what it escapes
		case c == '"':
			text = !text
		case text:
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
