package embedded

import (
	"errors"
	"net/url"
	"os"
	"path"
	"strings"
)

// flusher flushes objects to disk.
type flusher struct {
	root *os.Root
	// oneFile means that an object is one file. Otherwise its attributes are in files outside of root, and Sync flushes
	// the whole file system.
	oneFile bool
}

func openFlusher(dir string, oneFile bool) (*flusher, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &flusher{root, oneFile}, nil
}

// Sync flushes the object at a request's path, and the directories above it, which may be new.
func (f *flusher) Sync(urlPath string) error {
	name, err := url.PathUnescape(urlPath)
	if err != nil {
		return err
	}
	name = strings.Trim(name, "/")
	if !f.oneFile {
		return f.flush(".", syncAll)
	}
	for {
		if err := f.flush(name, (*os.File).Sync); err != nil {
			return err
		}
		if name == "." {
			return nil
		}
		name = path.Dir(name)
	}
}

func (f *flusher) flush(name string, sync func(*os.File) error) error {
	file, err := f.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(sync(file), file.Close())
}

func (f *flusher) Close() error { return f.root.Close() }
