package pipeline

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOutputIsIndependentOfPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		var got strings.Builder
		o := newOutput(func(stream, s string) {
			if stream != "stdout" {
				t.Fatalf("stream = %q; want stdout", stream)
			}
			got.WriteString(s)
		})
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			o.write("stdout", rest[:n])
			rest = rest[n:]
		}
		o.flush()
		if got.String() != strings.ToValidUTF8(text, "�") {
			t.Fatalf("output = %q, want %q", got.String(), text)
		}
	})
}

func TestOutputReplacesInvalidUTF8(t *testing.T) {
	var got strings.Builder
	o := newOutput(func(_, s string) { got.WriteString(s) })
	o.write("stdout", []byte("a\xff"))
	o.write("stdout", []byte("b\xe2\x82"))
	o.flush()
	if want := "a�b�"; got.String() != want {
		t.Errorf("output = %q, want %q", got.String(), want)
	}
}
