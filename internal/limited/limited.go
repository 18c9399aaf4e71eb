// Package limited reads files and streams whose size is not known. A device or a pipe may have no end, so the
// functions read no more than a limit.
package limited

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// ErrTooLarge is the error of an input that is larger than the limit.
var ErrTooLarge = errors.New("too large")

// ReadFile returns the content of a file of at most limit bytes. The error wraps ErrTooLarge if the file is larger.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := ReadAll(f, limit)
	if errors.Is(err, ErrTooLarge) {
		err = &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return data, err
}

// ReadAll returns the rest of r if that is at most limit bytes, and else ErrTooLarge.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, ErrTooLarge
	}
	return data, err
}
