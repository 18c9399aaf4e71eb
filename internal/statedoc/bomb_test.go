package statedoc_test

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/statedoc"
)

// TestBombs checks that a small file does not become large in memory. The files of the test have a few KB; at the
// maximum size they would expand to gigabytes.
func TestBombs(t *testing.T) {
	text := "a: &a " + strings.Repeat("x", 64<<10) + "\nb: [" + strings.Repeat("*a,", 2000) + "]\n"
	if data, err := statedoc.ToJSON("x.yaml", []byte(text)); err == nil {
		t.Errorf("YAML of %d bytes expanded to JSON of %d bytes, want an error", len(text), len(data))
	}
	if err := statedoc.CheckYAML([]byte(text)); err == nil {
		t.Error("CheckYAML = nil, want an error")
	}
	nested := `{"a":` + strings.Repeat("[", 450) + strings.Repeat("1,", 20_000) + "1" + strings.Repeat("]", 450) + "}"
	for _, name := range []string{"x.json", "x.yaml"} {
		data, err := statedoc.FromJSON(name, []byte(nested))
		if len(data) > statedoc.MaxSize {
			t.Errorf("JSON of %d bytes expanded to %d bytes of %s, %v, want at most the limit",
				len(nested), len(data), name, err)
		}
		if name == "x.json" && string(data) != nested+"\n" {
			t.Errorf("FromJSON changed JSON that is too large when indented: %d bytes, %v", len(data), err)
		}
	}
}
