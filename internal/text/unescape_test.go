package text_test

import (
	"testing"

	"github.com/codefleet/codefleet/internal/text"
)

func TestUnescapeHTML(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"\u003cb\u003E\u0026"}`: `{"a":"<b>&"}`,
		`"\\u003c"`:                   `"\\u003c"`,
		`"\\\u003c\u0041\""`:          `"\\<\u0041\""`,
		`"\u003"`:                     `"\u003"`,
		`[1]`:                         `[1]`,
	} {
		if got := string(text.UnescapeHTML([]byte(in))); got != want {
			t.Errorf("UnescapeHTML(%s) = %s, want %s", in, got, want)
		}
	}
}
