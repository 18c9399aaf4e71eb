package privacy_test

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/guardrails/privacy"
)

// prose is text as tools and programs return it: sentences, a log and JSON, with few values.
const prose = `The quarterly report lists 1,204 orders from 17 countries; 3.5 % were returned within 14 days.
2026-11-22T12:30:01Z INFO request completed method=GET path=/v1/orders/8421 status=200 duration_ms=12.7
{"id":"b2f1c9d4-77aa-4a0e-9c1e-0a4a3f2f6d11","customer":"Ada","email":"ada@example.org","total":129.90,"items":[1,2,3]}
Please call +44 20 7946 0958 before 18:00, or write to the office in Oslo. Version 4.2.1 is out since Monday.
commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b changed internal/state/repo/commit.go: 12 insertions, 3 deletions
`

func BenchmarkFind(b *testing.B) {
	text := strings.Repeat(prose, 1<<20/len(prose))
	for _, t := range []struct {
		name  string
		types []privacy.Type
	}{{"all", privacy.Types()}, {"shapes", privacy.Types()[:6]}, {"secrets", []privacy.Type{privacy.Secret}}} {
		b.Run(t.name, func(b *testing.B) {
			d, err := privacy.New(t.types...)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				d.Find(text)
			}
		})
	}
}
