package text_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/text"
)

func TestIndentJSON(t *testing.T) {
	if got := string(text.IndentJSON([]byte(`{"a":[1,{"b":"x,[\""}],"c":{}}`), " ",
		1000)); got != "{\n \"a\": [\n  1,\n  {\n   \"b\": \"x,[\\\"\"\n  }\n ],\n \"c\": {}\n}" {
		t.Errorf("IndentJSON() = %s; want it indented, except the empty object", got)
	}
	deep := strings.Repeat("[", 5000) + strings.Repeat("1,", 9000) + "1" + strings.Repeat("]", 5000)
	if got := string(text.IndentJSON([]byte(deep), "  ", 1<<20)); got != deep {
		t.Errorf("IndentJSON() of %d deeply nested bytes = %d bytes, want them unchanged", len(deep), len(got))
	}
}

func FuzzIndentedSize(f *testing.F) {
	for _, s := range []string{`{}`, `[[],{"a":"\\\","}]`, `[1, 2 ,{"k" : null}]`, `"\u0022["`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		if !json.Valid(data) || json.Indent(&out, data, "", "  ") != nil {
			return
		}
		if n := text.IndentedSize(data, 2); n < out.Len() {
			t.Errorf("IndentedSize(%q) = %d, want at least %d", data, n, out.Len())
		}
	})
}
