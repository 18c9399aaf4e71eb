package text

import "testing"

// TestToken checks the examples of RFC 6901, section 5.
func TestToken(t *testing.T) {
	for name, token := range map[string]string{
		"foo": "foo", "a/b": "a~1b", "m~n": "m~0n", "~1": "~01", "c%d": "c%d", " ": " ", "": "",
	} {
		if got := EncodeToken(name); got != token {
			t.Errorf("EncodeToken(%q) = %q, want %q", name, got, token)
		}
		if got := DecodeToken(token); got != name {
			t.Errorf("DecodeToken(%q) = %q, want %q", token, got, name)
		}
	}
}
