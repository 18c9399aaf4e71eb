package eval

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/selection"
)

func TestTune(t *testing.T) {
	dir := os.Getenv("SELECTION_DATA")
	var r5, r10 float64
	n := 0.0
	for _, name := range []string{"livemcpbench", "livemcpbench-steps", "livemcpbench-route", "mcpbench", "mcpproxy-golden", "metatool", "metatool-multi", "sealtools"} {
		set, err := Load(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		a := time.Now()
		s := selection.Build(set.Tools)
		built := time.Since(a)
		var m Metrics
		a = time.Now()
		for _, q := range set.Queries {
			m.add(measure(q, s.Ranked(q.Text, nil, 50)), 1/float64(len(set.Queries)))
		}
		per := time.Since(a) / time.Duration(len(set.Queries))
		fmt.Printf("%-20s R1 %.3f R5 %.3f R10 %.3f H3 %.3f nDCG %.3f MRR %.3f  build %v query %v\n", name, m.Recall1, m.Recall5, m.Recall10, m.Hit3, m.NDCG10, m.MRR, built.Round(time.Millisecond), per.Round(time.Microsecond))
		if name != "livemcpbench-route" {
			r5 += m.Recall5
			r10 += m.Recall10
			n++
		}
	}
	fmt.Printf("macro7 R5 %.4f R10 %.4f\n", r5/n, r10/n)
}
