package sse

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// read returns each event as one line.
func read(r io.Reader, limit int) (events []string, err error) {
	for e, failed := range Read(r, limit) {
		if failed != nil {
			return events, failed
		}
		events = append(events, fmt.Sprintf("%s|%s|%s", e.ID, e.Type, e.Data))
	}
	return events, nil
}

func TestRead(t *testing.T) {
	stream := ": comment\n\nid: 1\nevent: progress\ndata: {\"a\":\ndata:1}\n\nevent: ping\n\nretry: 5\nunknown: " +
		"field\ndata\n\ndata:  x\r\n\r\ndata: unfinished\n"
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(stream), "byte by byte": iotest.OneByteReader(strings.NewReader(stream)),
	} {
		got, err := read(r, 100)
		if want := "[1|progress|{\"a\":\n1} || || x]"; err != nil || fmt.Sprint(got) != want {
			t.Errorf("Read %s = %v, %v, want %s", name, got, err, want)
		}
	}
}

func TestReadIsBounded(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("data: a\n\n"), repeat("data: "+strings.Repeat("x", 50)+"\n"))
	if got, err := read(endless, 1000); !errors.Is(err, ErrTooLong) || len(got) != 1 {
		t.Errorf("Read of endless lines = %v, %v, want the first event and %v", got, err, ErrTooLong)
	}
	if got, err := read(repeat("x"), 1000); !errors.Is(err, ErrTooLong) || len(got) != 0 {
		t.Errorf("Read of an endless line = %v, %v, want %v", got, err, ErrTooLong)
	}
}

func TestReadKeepsTheReadersError(t *testing.T) {
	broken := errors.New("broken")
	got, err := read(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken)), 100)
	if !errors.Is(err, broken) || fmt.Sprint(got) != "[||a]" {
		t.Errorf("Read of a broken stream = %v, %v, want the first event and %v", got, err, broken)
	}
}

// repeat is an io.Reader that repeats a text without end.
type repeat string

func (r repeat) Read(p []byte) (int, error) {
	n := 0
	for n+len(r) <= len(p) {
		n += copy(p[n:], r)
	}
	return n, nil
}

func FuzzRead(f *testing.F) {
	f.Add("id: 1\ndata: a\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		n := 0
		for e, err := range Read(strings.NewReader(stream), 64) {
			if err == nil {
				n += len(e.Data)
			}
			if len(e.Data) > 64 || n > len(stream) {
				t.Errorf("Read(%q) yields an event of %d bytes, %d bytes in all", stream, len(e.Data), n)
			}
		}
	})
}
