package format

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
)

// TestSalt checks that salts make packs of the same blobs differ, that readers do not see them, and that PackSize
// includes them.
func TestSalt(t *testing.T) {
	blobs := []Blob{
		{ID: objects.Sum([]byte("a")), Stored: 1, Raw: 1},
		{ID: objects.Sum([]byte("bb")), Offset: 1, Stored: 2, Raw: 2},
	}
	pack := func() []byte { return AppendIndex([]byte("abb"), append(slices.Clone(blobs), NewSalt()), nil) }
	one, two := pack(), pack()
	if bytes.Equal(one, two) {
		t.Error("two packs of the same blobs are equal, want different ones")
	}
	got, _, _, err := ReadIndex(one, int64(len(one)), NewKeyring("acme", Secrets{}))
	if diff := cmp.Diff(blobs, got); err != nil || diff != "" {
		t.Errorf("ReadIndex() = %v, (-want +got):\n%s", err, diff)
	}
	if limit := PackSize(3, len(blobs)); len(one) > limit {
		t.Errorf("PackSize() = %d, want at least %d", limit, len(one))
	}
}
