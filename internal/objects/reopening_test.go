package objects_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
)

// failing is a store whose reads fail.
type failing struct {
	objects.Objects
	err error
}

func (f failing) Get(context.Context, string, objects.GetOptions) (objects.Object, error) {
	return objects.Object{}, f.err
}

// TestReopening checks that a store is opened again when it does not respond or refuses its credentials, and only then,
// and that a refused request is sent again.
func TestReopening(t *testing.T) {
	for name, c := range map[string]struct {
		err           error
		reopens       bool
		first, second error // errors of two requests
	}{
		"temporary": {objects.ErrTemporary, true, objects.ErrTemporary, objects.ErrNotFound},
		"denied":    {objects.ErrDenied, true, objects.ErrNotFound, objects.ErrNotFound},
		"other":     {objects.ErrCorrupt, false, objects.ErrCorrupt, objects.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			reopened := 0
			store := objects.Reopening(failing{err: c.err}, func() objects.Objects {
				reopened++
				return failing{err: objects.ErrNotFound}
			})
			for i, want := range []error{c.first, c.second} {
				if _, err := store.Get(t.Context(), "a", objects.GetOptions{}); !errors.Is(err, want) {
					t.Errorf("Get %d = %v, want %v", i, err, want)
				}
			}
			if (reopened == 1) != c.reopens || reopened > 1 {
				t.Errorf("opened again %d times, want %v", reopened, c.reopens)
			}
		})
	}
	unchanged := objects.Reopening(failing{err: objects.ErrDenied}, func() objects.Objects { return nil })
	if _, err := unchanged.Get(t.Context(), "a", objects.GetOptions{}); !errors.Is(err, objects.ErrDenied) {
		t.Errorf("Get from a store that has not moved = %v, want %v", err, objects.ErrDenied)
	}
}

// keys is a store with the objects a and b.
type keys struct{ objects.Objects }

func (keys) List(_ context.Context, _, after string) iter.Seq2[objects.ObjectInfo, error] {
	return func(yield func(objects.ObjectInfo, error) bool) {
		for _, key := range []string{"a", "b"} {
			if key > after && !yield(objects.ObjectInfo{Key: key}, nil) {
				return
			}
		}
	}
}

// TestReopenedListTwice checks that a list can be ranged over twice.
func TestReopenedListTwice(t *testing.T) {
	wantTwice(t, objects.Reopening(keys{}, nil).List(t.Context(), "", ""), "ab", func() {})
}
