package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/filelock"
)

// ErrInUse is returned when another server runs on the same directory.
var ErrInUse = errors.New("in use by another process")

// lockDir locks a data directory until unlock is called or this process ends.
func lockDir(dir string) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.TryLock(f); err != nil {
		f.Close()
		if errors.Is(err, filelock.ErrLocked) {
			err = ErrInUse
		}
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return f.Close, nil
}
