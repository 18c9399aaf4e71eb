package removal

import (
	"errors"
	"os"
	"testing"
)

// TestMoveUpFails checks that moveUp does not search on for a free name if it cannot read the directory.
func TestMoveUpFails(t *testing.T) {
	top, err := os.OpenRoot(t.TempDir())
	if err == nil {
		err = top.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := remover{top: top}
	if err := r.moveUp("a"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("moveUp in a closed directory = %v, want %v", err, os.ErrClosed)
	}
}
