package text

import "strings"

var (
	tokenEncoder = strings.NewReplacer("~", "~0", "/", "~1")
	tokenDecoder = strings.NewReplacer("~1", "/", "~0", "~")
)

// EncodeToken returns a member's name as a token of a JSON Pointer (RFC 6901).
func EncodeToken(name string) string { return tokenEncoder.Replace(name) }

// DecodeToken returns the member's name in a token of a JSON Pointer.
func DecodeToken(token string) string { return tokenDecoder.Replace(token) }
