package gvisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// pythons are where root file systems have their interpreter: one that was put there first. The
// host's is the distribution's, which alone boxes see.
var pythons = []string{"/usr/local/bin/python3", executor.DefaultGuest().Python}

// findPython returns the path of the interpreter in a root file system, empty for the host's, or says
// what to install. A script in its place is a shim, which is slow or needs what is not there.
func findPython(dir string) (string, error) {
	candidates, fix := pythons, "install python3 in the root file system "+dir
	if dir == "" {
		dir, candidates, fix = "/", pythons[1:], "install it: apt-get install python3 (or dnf install python3)"
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("look at the Python of boxes: %w", err)
	}
	defer root.Close()
	missing := fmt.Errorf("no Python at %s", strings.Join(candidates, " or "))
	for _, path := range candidates {
		err := checkPython(root, path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			missing = err
		}
	}
	return "", &executor.HostError{Reason: executor.ReasonImageNoPython, Err: missing, Fix: fix}
}

// checkPython looks whether an interpreter is a program.
func checkPython(root *os.Root, path string) error {
	at, err := hostdir.Resolve(root, path)
	if err != nil {
		return fmt.Errorf("look at the Python of boxes: %w", err)
	}
	if info, err := root.Stat(at); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file", path)
	}
	file, err := root.Open(at)
	if err != nil {
		return fmt.Errorf("look at the Python of boxes: %w", err)
	}
	defer file.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(file, magic); err != nil || !bytes.Equal(magic, []byte("\x7fELF")) {
		return fmt.Errorf("%s is not an interpreter but a script or a wrapper", path)
	}
	return nil
}
