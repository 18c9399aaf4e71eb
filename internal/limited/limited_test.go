package limited

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadFile(path, 4); string(data) != "four" || err != nil {
		t.Errorf("ReadFile = %q, %v; want the whole file", data, err)
	}
	for _, name := range []string{path, "/dev/zero"} {
		data, err := ReadFile(name, 3)
		if data != nil || !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), name) {
			t.Errorf("ReadFile(%s) of more than 3 bytes = %q, %v; want ErrTooLarge with the path", name, data, err)
		}
	}
	if _, err := ReadFile(path+"x", 4); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ReadFile of a missing file: %v, want ErrNotExist", err)
	}
}
