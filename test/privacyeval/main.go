// Command privacyeval measures the detection of personal data on the synthetic data sets of presidio-research (MIT
// licence, github.com/data-privacy-stack/presidio-research): data/synth_dataset_v2.json and
// tests/data/generated_large.json.
//
//	go run ./test/privacyeval FILE…
//
// A value counts as found if a span of its type covers all of it. A span counts as right if it overlaps a value of its
// type. The command prints recall and precision by type, and the throughput on the concatenated texts.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/codefleet/codefleet/internal/guardrails/privacy"
)

// types maps the data sets' names of types to the detector's.
var types = map[string]privacy.Type{
	"EMAIL_ADDRESS": privacy.Email, "PHONE_NUMBER": privacy.Phone, "US_SSN": privacy.SSN,
	"CREDIT_CARD": privacy.Card, "IBAN_CODE": privacy.IBAN, "IP_ADDRESS": privacy.IP,
}

type sample struct {
	Text  string  `json:"full_text"`
	Spans []value `json:"spans"`
}

type value struct {
	Type  string `json:"entity_type"`
	Start int    `json:"start_position"` // in characters
	End   int    `json:"end_position"`
}

type counts struct{ values, found, spans, right int }

func main() {
	verbose := flag.Bool("v", false, "print what is missed and what is wrong")
	flag.Parse()
	if err := run(flag.Args(), *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "privacyeval:", err)
		os.Exit(1)
	}
}

func run(files []string, verbose bool) error {
	d, err := privacy.New(privacy.Types()...)
	if err != nil {
		return err
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var samples []sample
		if err := json.Unmarshal(data, &samples); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		byType := map[privacy.Type]*counts{}
		for _, t := range privacy.Types() {
			byType[t] = &counts{}
		}
		var all strings.Builder
		for _, s := range samples {
			all.WriteString(s.Text + "\n")
			count(d, s, byType, verbose)
		}
		report(name, byType)
		throughput(d, strings.Repeat(all.String(), 10<<20/all.Len()+1))
	}
	return nil
}

// count compares the values of a sample with the spans that the detector finds, and adds the result to byType.
func count(d *privacy.Detector, s sample, byType map[privacy.Type]*counts, verbose bool) {
	runes := []rune(s.Text)
	offset := func(n int) int { return len(string(runes[:n])) }
	spans := d.Find(s.Text)
	used := map[int]bool{}
	for _, v := range s.Spans {
		t, ok := types[v.Type]
		if !ok {
			continue
		}
		start, end := offset(v.Start), offset(v.End)
		covered := false
		for i, f := range spans {
			if f.Type == t && f.Start < end && start < f.End {
				used[i] = true
				covered = covered || f.Start <= start && end <= f.End
			}
		}
		byType[t].values++
		if covered {
			byType[t].found++
		} else if verbose {
			fmt.Printf("missed %s %q in %q\n", t, s.Text[start:end], s.Text)
		}
	}
	for i, f := range spans {
		byType[f.Type].spans++
		if used[i] {
			byType[f.Type].right++
		} else if verbose {
			fmt.Printf("wrong  %s %q in %q\n", f.Type, s.Text[f.Start:f.End], s.Text)
		}
	}
}

func report(name string, byType map[privacy.Type]*counts) {
	fmt.Println(name)
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "type\tvalues\trecall\tspans\tprecision")
	for _, t := range privacy.Types() {
		c := byType[t]
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\n", t, c.values, ratio(c.found, c.values), c.spans, ratio(c.right, c.spans))
	}
	_ = w.Flush() // standard output
}

func ratio(n, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", float64(n)/float64(of))
}

func throughput(d *privacy.Detector, text string) {
	start, used := time.Now(), processorTime()
	n := len(d.Find(text))
	spent, used := time.Since(start), processorTime()-used
	mb := float64(len(text)) / 1e6
	fmt.Printf("%.1f MB, %d spans, %.1f MB/s, %.1f MB per second of processor time\n\n",
		mb, n, mb/spent.Seconds(), mb/used.Seconds())
}

// processorTime returns the time that this process has used processors, including garbage collection.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
