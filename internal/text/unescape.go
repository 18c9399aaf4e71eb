package text

import "bytes"

// UnescapeHTML returns valid JSON in which <, > and & are written as such, and not as \u003c, \u003e and \u0026, which
// encoding/json writes for HTML.
func UnescapeHTML(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u00`)) {
		return data
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' || i+1 == len(data) {
			out = append(out, data[i])
			continue
		}
		if i+6 <= len(data) {
			if c := htmlEscapes[string(bytes.ToLower(data[i:i+6]))]; c != 0 {
				out = append(out, c)
				i += 5
				continue
			}
		}
		out = append(out, data[i], data[i+1]) // another escape sequence, such as \\
		i++
	}
	return out
}

var htmlEscapes = map[string]byte{`\u003c`: '<', `\u003e`: '>', `\u0026`: '&'}
