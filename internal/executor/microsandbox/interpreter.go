package microsandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/codefleet/codefleet/internal/executor"
)

// askPython says which wheels an interpreter takes: its version, the processor, the C library.
const askPython = `
import json, os, platform, sys
library, version = platform.libc_ver()
print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "machine": os.uname().machine, "library": library, "library_version": version}))
`

// Interpreter gets an image and boots a box of it, which says what its Python is. The answer is
// remembered for the life of the driver.
func (d *Driver) Interpreter(ctx context.Context, name string) (executor.Python, error) {
	img, err := d.prepareImage(ctx, name)
	if err != nil {
		return executor.Python{}, fmt.Errorf("ask for the Python of an image: %w", err)
	}
	img.asking.Lock()
	defer img.asking.Unlock()
	if img.answer.Version != "" {
		return img.answer, nil
	}
	var said string
	err = d.brief(ctx, executor.Spec{Image: name}, func(b *box) (err error) {
		said, err = b.output(ctx, b.image.python, "-I", "-S", "-c", askPython)
		return err
	})
	if err == nil {
		img.answer, err = parsePython(said)
	}
	if err != nil {
		return executor.Python{}, fmt.Errorf("ask for the Python of an image: %w", err)
	}
	return img.answer, nil
}

// parsePython reads what askPython prints.
func parsePython(said string) (executor.Python, error) {
	var p struct {
		Version        string `json:"version"`
		Machine        string `json:"machine"`
		Library        string `json:"library"`
		LibraryVersion string `json:"library_version"`
	}
	if err := json.Unmarshal([]byte(said), &p); err != nil {
		return executor.Python{}, fmt.Errorf("the image's Python says %.80q: %w", said, err)
	}
	if p.Version == "" || p.Machine == "" {
		return executor.Python{}, fmt.Errorf("the image's Python says %.80q", said)
	}
	return executor.Python{Version: p.Version, Platforms: platforms(p.Machine, p.Library, p.LibraryVersion)}, nil
}

// platforms are the tags of wheels that fit (PEP 600 and 656): those built for this C library or an
// older one. musl does not say which it is; 1.1 and 1.2 are what there is.
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

// brief makes a box in this process's own name, hands it over, and destroys it.
func (d *Driver) brief(ctx context.Context, spec executor.Spec, use func(*box) error) (err error) {
	spec.Name, spec.Owner, spec.Env = "p", probeName(), []string{"PATH=/usr/bin:/bin"}
	b, err := d.create(ctx, spec)
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		err = errors.Join(err, d.disown(spec.Owner))
	}()
	if err != nil {
		return bootError(err)
	}
	return errors.Join(use(b), b.Destroy(context.WithoutCancel(ctx)))
}
