package ingest

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/state"
)

// TestLargeListIsRefusedEarly checks that a list with millions of short elements is refused before it is decoded as a
// whole, which would cost gigabytes.
func TestLargeListIsRefusedEarly(t *testing.T) {
	const maxMemory = 500 << 20 // 400 with the race detector; lists of values would take gigabytes
	elements := func(size int, element string) []byte {
		return append(bytes.Repeat([]byte(element+","), size/(len(element)+1)-1), element...)
	}
	list := func(size int, before, element, after string) []byte {
		return append(append([]byte(before), elements(size, element)...), after...)
	}
	edits := list(maxEditBytes-2, "[", "{}", "]")
	registration := list(32<<20, `{"server":"s","tools":[`, "{}", "]}")
	batch := list(32<<20, "[", "1", "]")
	for name, c := range map[string]struct {
		decode func() error
		want   string
	}{
		"edits": {func() (err error) {
			yieldOthers(bytes.NewReader(edits), func(_ state.Edit, e error) bool { err = e; return e == nil })
			return err
		}, "the list has more than 200000 elements"},
		"registration": {func() error {
			_, _, err := decodeRegistration(registration)
			return err
		}, "the list has more than 500 elements"},
		"batch": {func() error {
			if _, err := decodeBatch(batch, 1000); err != nil {
				return err
			}
			return nil
		}, "the batch has more than 1000 events"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := c.decode()
		runtime.ReadMemStats(&after)
		e, ok := errors.AsType[*apierror.Error](err)
		if !ok || e.Code != errcode.TooLarge || e.Message != c.want {
			t.Errorf("%s: %v, want %s: %q", name, err, errcode.TooLarge, c.want)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > maxMemory {
			t.Errorf("%s: decoding allocated %d MiB, want at most %d", name, used>>20, maxMemory>>20)
		}
	}
}
