package executortest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
)

// stateful is a library that draws random values when it is imported, so they are the same in all restored boxes. The
// test installs it as numpy.random, which the runner seeds again for each program.
const stateful = `
import os, ssl, random, tempfile, time, uuid
drawn = [ssl.RAND_bytes(8).hex(), uuid.uuid4().hex, random.random(), next(tempfile._get_candidate_names())]
own = random.Random()
imported = time.monotonic()
state = os.urandom(8).hex()
def seed():
    global state
    state = os.urandom(8).hex()
`

// draws is a program that returns fresh random values, the values that all restored boxes share, and the time.
const draws = `
import numpy.random as lib, os, random, secrets, ssl, tempfile, time, uuid
fresh = [os.urandom(8).hex(), ssl.RAND_bytes(8).hex(), uuid.uuid4().hex, str(uuid.uuid1()), secrets.token_hex(8),
    next(tempfile._get_candidate_names()), random.SystemRandom().random(), random.Random().random(), lib.state,
    random.random(), open('/proc/sys/kernel/random/uuid').read()]
{"fresh": [str(x) for x in fresh], "shared": [str(x) for x in lib.drawn + [lib.own.random()]],
    "now": time.time(), "since": time.monotonic() - lib.imported}`

type drawn struct {
	Fresh, Shared []string
	Now, Since    float64
}

// testCopies runs two programs in each of two restored boxes and compares their random values.
func testCopies(t *testing.T, newDriver driverFunc) {
	packages := openDir(t)
	writeFiles(t, packages, map[string]string{"numpy/__init__.py": "", "numpy/random.py": stateful})
	spec := executor.Spec{
		Owner: "executortest", Name: "copies",
		Mounts: []executor.Mount{{Source: packages, Target: executor.PackagesDir, ReadOnly: true}},
	}
	first := template(t, newDriver(t), spec, "numpy.random")
	drawnBy := map[string]string{} // task that drew a value
	var shared []string
	for _, name := range []string{"a", "b"} {
		spec.Name, spec.Workspace = name, workspace(t)
		single, err := first.Another(t.Context(), spec)
		if err != nil {
			t.Fatalf("Another() = %v, want nil", err)
		}
		t.Cleanup(func() {
			if err := single.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}
		})
		for _, task := range []string{name + "1", name + "2"} {
			v, err := single.Run(t.Context(), executor.Program{TaskID: task, Code: draws}, executor.Hooks{})
			var d drawn
			if err := errors.Join(err, json.Unmarshal(v.Result, &d)); err != nil {
				t.Fatalf("Run() = %s, %v, want random values", format(v), err)
			}
			for _, x := range d.Fresh {
				if before, ok := drawnBy[x]; ok {
					t.Errorf("%s was drawn by tasks %s and %s, want different values", x, before, task)
				}
				drawnBy[x] = task
			}
			if shared == nil {
				shared = d.Shared
			}
			if !slices.Equal(d.Shared, shared) {
				t.Errorf("values drawn at import = %q in task %s, want %q as in the first task", d.Shared, task, shared)
			}
			if off := time.Since(time.UnixMilli(int64(d.Now * 1000))).Abs(); off > time.Minute {
				t.Errorf("the clock of task %s is %s off, want at most 1m", task, off)
			}
			if d.Since <= 0 || d.Since > 600 {
				t.Errorf("age of the import in task %s = %g s, want more than 0 and at most 600", task, d.Since)
			}
		}
	}
	if want := 4 * 11; len(drawnBy) != want {
		t.Errorf("%d values were drawn, want %d", len(drawnBy), want)
	}
}
