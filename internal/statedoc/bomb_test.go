package statedoc_test

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/statedoc"
)

// A small file must not become a large one in memory: these are a few KB here, and would be gigabytes
// at the size that is allowed.
func TestBombs(t *testing.T) {
	text := "a: &a " + strings.Repeat("x", 64<<10) + "\nb: [" + strings.Repeat("*a,", 2000) + "]\n"
	if data, err := statedoc.ToJSON("x.yaml", []byte(text)); err == nil {
		t.Errorf("YAML of %d bytes became JSON of %d", len(text), len(data))
	}
	if err := statedoc.CheckYAML([]byte(text)); err == nil {
		t.Error("CheckYAML takes it")
	}
	nested := `{"a":` + strings.Repeat("[", 2000) + strings.Repeat("1,", 20_000) + "1" + strings.Repeat("]", 2000) + "}"
	for _, name := range []string{"x.json", "x.yaml"} {
		data, err := statedoc.FromJSON(name, []byte(nested))
		if len(data) > statedoc.MaxSize {
			t.Errorf("JSON of %d bytes became %s of %d, %v", len(nested), name, len(data), err)
		}
		if name == "x.json" && string(data) != nested+"\n" {
			t.Errorf("what is too large indented is not kept as it is: %d bytes, %v", len(data), err)
		}
	}
}
