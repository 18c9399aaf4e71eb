package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// pythons are the possible paths of the interpreter in a root file system, in order of preference: one that was
// added to an image comes before the distribution's. Boxes with parts of the host's /usr see only the latter.
var pythons = []string{"/usr/local/bin/python3", executor.DefaultGuest().Python}

// findPython returns the path of the interpreter in the root file system dir, or in the host's if dir is empty.
// It does not accept a script, because a wrapper may need files that the box does not have. The error says what
// to install.
func findPython(ctx context.Context, dir string) (string, error) {
	candidates, fix := pythons, "install python3 in the root file system "+dir
	if dir == "" {
		dir, candidates, fix = "/", pythons[1:], "install it: apt-get install python3 (or dnf install python3)"
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("find the Python of boxes: %w", err)
	}
	defer root.Close()
	missing := fmt.Errorf("no Python at %s", strings.Join(candidates, " or "))
	for _, path := range candidates {
		err := checkPython(ctx, root, path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			missing = err
		}
	}
	return "", &executor.HostError{Reason: executor.ReasonImageNoPython, Err: missing, Fix: fix}
}

// checkPython returns an error unless path is an ELF executable.
func checkPython(ctx context.Context, root *os.Root, path string) error {
	at, err := hostdir.Resolve(ctx, root, path)
	if err != nil {
		return fmt.Errorf("find the Python of boxes: %w", err)
	}
	if info, err := root.Stat(at); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", path)
	}
	file, err := root.Open(at)
	if err != nil {
		return fmt.Errorf("find the Python of boxes: %w", err)
	}
	defer file.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(file, magic); err != nil || !bytes.Equal(magic, []byte("\x7fELF")) {
		return fmt.Errorf("%s is a script or a wrapper, not an interpreter", path)
	}
	return nil
}
