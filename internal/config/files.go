package config

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/codefleet/codefleet/internal/executor/drivers"
)

// CheckFiles checks that the files of the section execution without which a worker cannot start exist on this host. The
// error is an *InvalidError.
func (c *Config) CheckFiles() error {
	k, e := &checker{c: c}, c.Execution
	if e.SandboxType == drivers.Microsandbox {
		k.executable("execution.msb", e.Msb) // otherwise, gVisor is chosen if msb does not work
	} else {
		k.executable("execution.runsc", e.Runsc)
		k.exists("execution.rootfs", e.Rootfs)
		if info, err := os.Stat(e.Rootfs); err == nil && !info.IsDir() {
			k.bad("execution.rootfs", "%s is not a directory", e.Rootfs)
		}
	}
	if strings.HasPrefix(e.SandboxImage, "/") || strings.HasPrefix(e.SandboxImage, ".") {
		k.exists("execution.sandbox_image", e.SandboxImage)
	}
	k.exists("execution.requirements", e.Requirements)
	if info, err := os.Stat(e.Requirements); err == nil && info.IsDir() {
		k.bad("execution.requirements", "%s is a directory", e.Requirements)
	}
	if len(k.problems) > 0 {
		return &InvalidError{Problems: k.problems}
	}
	return nil
}

func (k *checker) exists(key, path string) {
	if path == "" {
		return
	}
	if _, err := os.Stat(path); err != nil {
		k.bad(key, "%s: %v", path, reason(err))
	}
}

func (k *checker) executable(key, path string) {
	if path == "" {
		return
	}
	if _, err := exec.LookPath(path); err != nil {
		k.bad(key, "%s: %v", path, reason(err))
	}
}

// reason returns the error within an error of the file system, which repeats the path.
func reason(err error) error {
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return err
}
