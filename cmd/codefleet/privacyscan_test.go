package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/guardrails/privacy"
)

// The time to list the values in one long line is proportional to the length of the line.
func TestPositionsInALongLine(t *testing.T) {
	const n, limit = 200_000, 20 * time.Second
	d, err := privacy.New(privacy.Email)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	found := matchesIn(d, "f", "ä\n"+strings.Repeat("ä é@b.co ", n))
	if took := time.Since(start); took > limit {
		t.Errorf("matchesIn() took %v, want less than %v", took, limit)
	}
	if len(found) != n {
		t.Fatalf("matchesIn() = %d findings, want %d", len(found), n)
	}
	if last := found[n-1]; last.Line != 2 || last.Column != (n-1)*9+3 || last.Value != "é@b.co" {
		t.Errorf("matchesIn() ends with %+v, want line 2, column %d, é@b.co", last, (n-1)*9+3)
	}
}

// Files with a byte order mark are read as UTF-16, as spreadsheets export them, or as UTF-8.
func TestScanByteOrderMarks(t *testing.T) {
	d, err := privacy.New(privacy.Email)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"big endian":    "\xfe\xff\x00a\x00@\x00b\x00.\x00c\x00o",
		"little endian": "\xff\xfea\x00@\x00b\x00.\x00c\x00o\x00",
		"UTF-8":         "\xef\xbb\xbfa@b.co",
		"none":          "a@b.co",
	} {
		file := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		data, err := (&app{}).readForScan(file)
		if err != nil {
			t.Fatal(err)
		}
		got := matchesIn(d, "f", data)
		if len(got) != 1 || got[0].Value != "a@b.co" || got[0].Column != 1 {
			t.Errorf("%s: found %+v, want a@b.co in column 1", name, got)
		}
	}
}
