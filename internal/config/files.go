package config

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/executor/drivers"
)

// CheckFiles checks that the files of the section execution without which a worker cannot start exist on this host. The
// error is an *InvalidError. With sandbox_type: auto, a problem of a file that only one of the drivers needs is a
// warning, because the other one may work.
func (c *Config) CheckFiles() (warnings []string, err error) {
	k, gvisor, e := &checker{c: c}, &checker{c: c}, c.Execution
	gvisor.executable("execution.runsc", e.Runsc)
	gvisor.exists("execution.rootfs", e.Rootfs)
	if info, err := os.Stat(e.Rootfs); err == nil && !info.IsDir() {
		gvisor.bad("execution.rootfs", "%s is not a directory", e.Rootfs)
	}
	switch e.SandboxType {
	case drivers.Microsandbox:
		k.executable("execution.msb", e.Msb)
	case drivers.GVisor:
		k.problems = gvisor.problems
	default:
		for _, p := range gvisor.problems {
			warnings = append(warnings, p.String()+" (needed if microsandbox does not work)")
		}
	}
	// A listed task pool has packages of its own, and may have an image of its own. Microsandbox boots a box with the
	// image of the section execution when the worker starts, whatever the task pools have.
	needs := func(needed func(Pool) bool) bool {
		return slices.ContainsFunc(c.WorkerPools(), func(name string) bool {
			pool, listed := c.Pools[name]
			return !listed || needed(pool)
		})
	}
	image := &checker{c: c}
	if strings.HasPrefix(e.SandboxImage, "/") || strings.HasPrefix(e.SandboxImage, ".") {
		image.exists("execution.sandbox_image", e.SandboxImage)
	}
	switch {
	case e.SandboxType == drivers.Microsandbox || needs(func(p Pool) bool { return p.Image == "" }):
		k.problems = append(k.problems, image.problems...)
	case e.SandboxType != drivers.GVisor:
		for _, p := range image.problems {
			warnings = append(warnings, p.String()+" (needed by microsandbox)")
		}
	}
	if needs(func(Pool) bool { return false }) {
		k.file("execution.requirements", e.Requirements)
	}
	return warnings, k.invalid()
}

// CheckQueueFiles checks that the files with credentials and certificates for the queue can be read on this host. The
// error is an *InvalidError. Without nats.url they are not used.
func (c *Config) CheckQueueFiles() error {
	k, n := &checker{c: c}, c.NATS
	if n.URL != "" {
		k.file("nats.creds", n.Creds)
		k.file("nats.tls_ca", n.TLSCA)
		k.file("nats.tls_cert", n.TLSCert)
		k.file("nats.tls_key", n.TLSKey)
	}
	return k.invalid()
}

// invalid returns the problems as an *InvalidError, or nil if there are none.
func (k *checker) invalid() error {
	if len(k.problems) == 0 {
		return nil
	}
	return &InvalidError{Problems: k.problems}
}

// file reports a file that does not exist, is a directory or cannot be read.
func (k *checker) file(key, path string) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		k.bad(key, "%s is a directory", path)
	case err == nil && info.Mode().IsRegular():
		f, err := os.Open(path)
		if err != nil {
			k.bad(key, "%s: %v", path, reason(err))
			return
		}
		f.Close()
	default:
		k.exists(key, path)
	}
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

// reason returns the error that an error of the file system wraps. The text of the outer error contains the path, which
// the caller names already.
func reason(err error) error {
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return err
}
