package form_test

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/form"
)

func BenchmarkFill(b *testing.B) {
	f := claim(b)
	for name, document := range map[string]string{
		"letter": read(b, "../../examples/data/forms/letter.txt"),
		"labels": strings.Repeat("a:", form.MaxDocument/2), "numbers": strings.Repeat("1 ", form.MaxDocument/2),
		"choices":   strings.Repeat("fire. ", form.MaxDocument/6),
		"addresses": strings.Repeat("a@b.c ", form.MaxDocument/6),
		"lines":     strings.Repeat("a: b\n", form.MaxDocument/5),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := form.Fill(b.Context(), f, document, form.Method{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
