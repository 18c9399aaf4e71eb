package tools

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Generator is the version of the format of generated modules. A module of another version counts as
// hand-written.
const Generator = 1

// Header is the first line of a generated module: a comment with JSON. It tells without running Python
// what the module calls.
type Header struct {
	Generator int    `json:"generator"`
	Server    string `json:"server"`
	Tool      string `json:"tool"`
	Function  string `json:"function"`
	Hash      string `json:"hash"` // of the definition
	Version   string `json:"server_version,omitempty"`
	Signature string `json:"signature"`
	Body      string `json:"body"` // digest of all that follows the header line, to detect edits
}

const headerPrefix = "# codefleet: "

// Seal returns a generated module: the header line, with Body set, and the body.
func Seal(h Header, body []byte) []byte {
	h.Body = digest(body)
	var b bytes.Buffer
	b.WriteString(headerPrefix)
	enc := json.NewEncoder(&b) // on one line: JSON escapes line ends
	enc.SetEscapeHTML(false)
	if err := enc.Encode(h); err != nil {
		panic("tools: header does not encode: " + err.Error())
	}
	b.Write(body)
	return b.Bytes()
}

// readHeader returns the header of a generated module. A module without a header, with that of another
// Generator or with an edited body is hand-written.
func readHeader(src []byte) (Header, bool) {
	rest, ok := bytes.CutPrefix(src, []byte(headerPrefix))
	if !ok {
		return Header{}, false
	}
	line, body, ok := bytes.Cut(rest, []byte("\n"))
	var h Header
	if !ok || json.Unmarshal(line, &h) != nil || h.Generator != Generator || h.Body != digest(body) {
		return Header{}, false
	}
	return h, true
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}
