package tools

import (
	"bytes"
	"encoding/json"
)

// DecodeJSON decodes the JSON value with which data begins, and ignores the rest. Numbers keep their text: they become
// json.Number.
func DecodeJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

// EncodeJSON encodes v on one line with a final newline. It does not escape <, > and &.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}
