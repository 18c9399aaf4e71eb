package microsandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/codefleet/codefleet/internal/executor"
)

// describePython prints what determines an interpreter's wheels: its version, processor and C library.
const describePython = `
import json, os, platform, sys
library, library_version = platform.libc_ver()
version = "%d.%d.%d" % sys.version_info[:3]
machine = os.uname().machine
print(json.dumps({"version": version, "machine": machine, "library": library, "library_version": library_version}))
`

// Interpreter fetches an image and boots a box from it to describe its Python. The driver keeps the result.
func (d *Driver) Interpreter(ctx context.Context, name string) (executor.Python, error) {
	img, err := d.prepareImage(ctx, name)
	if err != nil {
		return executor.Python{}, fmt.Errorf("describe the Python of an image: %w", err)
	}
	img.describing.Lock()
	defer img.describing.Unlock()
	if img.interpreter.Version != "" {
		return img.interpreter, nil
	}
	var output string
	err = d.withBox(ctx, executor.Spec{Image: name}, func(b *box) (err error) {
		output, err = b.output(ctx, b.image.python, "-I", "-S", "-c", describePython)
		return err
	})
	if err == nil {
		img.interpreter, err = parsePython(output)
	}
	if err != nil {
		return executor.Python{}, fmt.Errorf("describe the Python of an image: %w", err)
	}
	return img.interpreter, nil
}

// parsePython parses the output of describePython.
func parsePython(output string) (executor.Python, error) {
	var p struct {
		Version        string `json:"version"`
		Machine        string `json:"machine"`
		Library        string `json:"library"`
		LibraryVersion string `json:"library_version"`
	}
	if err := json.Unmarshal([]byte(output), &p); err != nil {
		return executor.Python{}, fmt.Errorf("the image's Python printed %.80q: %w", output, err)
	}
	if p.Version == "" || p.Machine == "" {
		return executor.Python{}, fmt.Errorf("the image's Python printed %.80q", output)
	}
	return executor.Python{Version: p.Version, Platforms: platforms(p.Machine, p.Library, p.LibraryVersion)}, nil
}

// platforms returns the tags of compatible wheels (PEP 600 and 656), which are built for this version of the C
// library or an older one. musl does not report its version; its tags are for 1.1 and 1.2.
func platforms(machine, library, version string) []string {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); library != "glibc" || err != nil || major != 2 {
		return []string{"musllinux_1_2_" + machine, "musllinux_1_1_" + machine, "linux_" + machine}
	}
	var tags []string
	for ; minor >= 5; minor-- {
		tags = append(tags, "manylinux_2_"+strconv.Itoa(minor)+"_"+machine)
		if alias := map[int]string{17: "manylinux2014_", 12: "manylinux2010_", 5: "manylinux1_"}[minor]; alias != "" {
			tags = append(tags, alias+machine)
		}
	}
	return append(tags, "linux_"+machine)
}

// withBox creates a box for a probe, calls use, and destroys the box.
func (d *Driver) withBox(ctx context.Context, spec executor.Spec, use func(*box) error) (err error) {
	spec.Name, spec.Owner, spec.Env = "p", executor.ProbeOwner(probeOwner), []string{"PATH=/usr/bin:/bin"}
	b, err := d.create(ctx, spec)
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		err = errors.Join(err, d.unlockOwner(spec.Owner))
	}()
	if err != nil {
		return bootError(err)
	}
	return errors.Join(use(b), b.Destroy(context.WithoutCancel(ctx)))
}
