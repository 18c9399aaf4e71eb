package privacy_test

import (
	"os"
	"testing"

	"github.com/codefleet/codefleet/internal/guardrails/privacy"
)

func BenchmarkFind(b *testing.B) {
	data, _ := os.ReadFile("/tmp/pii/text")
	for _, t := range []struct {
		name  string
		types []privacy.Type
	}{{"shapes", privacy.Types()[:6]}, {"secrets", []privacy.Type{privacy.Secret}}} {
		b.Run(t.name, func(b *testing.B) {
			d, _ := privacy.New(t.types...)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				d.Find(string(data))
			}
		})
	}
}
