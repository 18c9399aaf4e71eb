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
		o := newOutput(1<<20, func(stream, s string) {
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
	o := newOutput(1<<20, func(_, s string) { got.WriteString(s) })
	o.write("stdout", []byte("a\xff"))
	o.write("stdout", []byte("b\xe2\x82"))
	o.flush()
	if want := "a�b�"; got.String() != want {
		t.Errorf("output = %q, want %q", got.String(), want)
	}
}

// TestOutputIsBoundedAsJSON checks that a task cannot fill the log with characters that are long in JSON.
func TestOutputIsBoundedAsJSON(t *testing.T) {
	got := map[string]string{}
	o := newOutput(100, func(stream, s string) { got[stream] += s })
	for range 10 {
		o.write("stdout", make([]byte, 10)) // NULs, each of them \u0000
		o.write("stderr", []byte("\"quote\"\n\n"))
	}
	o.write("stdout", []byte("x"))
	if want := strings.Repeat("\x00", 30) + "…"; got["stdout"] != want {
		t.Errorf("stdout = %q, want %q: 180 of 200 bytes of JSON, and a sign", got["stdout"], want)
	}
	if want := strings.Repeat("\"quote\"\n\n", 10); got["stderr"] != want {
		t.Errorf("stderr = %q, want %q", got["stderr"], want)
	}
}
