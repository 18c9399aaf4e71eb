package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/text"
)

// A Checker returns the syntax errors of the sources that are not valid Python, by their keys in sources.
type Checker func(ctx context.Context, sources map[string][]byte) (map[string]Broken, error)

// PythonChecker returns a Checker that compiles sources with the interpreter, without running them. It compiles them in
// one isolated process (-I) without site packages (-S), limited to 2 s of processor time and 512 MiB. If that process
// fails, it compiles each file in a process of its own, so that a file that exceeds the limits is broken and does not
// affect the others. Sources come from the operator's servers directory, never from a tenant. interpreter is an
// absolute path. If it is empty, PythonChecker uses /usr/bin/python3 or else the first python3 in PATH, and returns nil
// if there is none.
func PythonChecker(interpreter string) Checker {
	if interpreter == "" {
		interpreter = "/usr/bin/python3"
		if _, err := os.Stat(interpreter); err != nil {
			if interpreter, err = exec.LookPath("python3"); err != nil {
				return nil
			}
		}
	}
	return func(ctx context.Context, sources map[string][]byte) (map[string]Broken, error) {
		found, err := compileAll(ctx, interpreter, sources)
		if err == nil || ctx.Err() != nil {
			return found, err
		}
		if _, err := compileAll(ctx, interpreter, map[string][]byte{"empty": nil}); err != nil {
			return nil, err // the interpreter fails, whatever it compiles
		}
		return compileEach(ctx, interpreter, sources)
	}
}

// compileEach compiles each source in its own process, to find the one that crashes the interpreter.
func compileEach(ctx context.Context, interpreter string, sources map[string][]byte) (map[string]Broken, error) {
	out := map[string]Broken{}
	for name, src := range sources {
		found, err := compileAll(ctx, interpreter, map[string][]byte{name: src})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			found = map[string]Broken{name: {Message: "the Python parser crashes on this file"}}
		}
		maps.Copy(out, found)
	}
	return out, nil
}

const compileScript = `
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
try: resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
except (ValueError, OSError): pass
bad = {}
for name, src in json.load(sys.stdin.buffer).items():
    try: compile(src, name, "exec", dont_inherit=True)
    except SyntaxError as e: bad[name] = {"line": e.lineno or 0, "message": e.msg}
    except (ValueError, RecursionError, MemoryError, OverflowError) as e:
        bad[name] = {"line": 0, "message": type(e).__name__ + ": " + str(e)}
json.dump(bad, sys.stdout)
`

func compileAll(ctx context.Context, interpreter string, sources map[string][]byte) (map[string]Broken, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	texts := make(map[string]string, len(sources))
	for name, src := range sources {
		texts[name] = strings.TrimPrefix(string(src), "\ufeff") // Python's import skips it, but compile() does not
	}
	in, err := json.Marshal(texts)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, interpreter, "-I", "-S", "-W", "ignore", "-c", compileScript)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Env = []string{"LANG=C.UTF-8"}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("check syntax with %s: %w", interpreter, err)
	}
	bad := map[string]Broken{}
	if err := json.Unmarshal(out, &bad); err != nil {
		return nil, fmt.Errorf("check syntax with %s: %w", interpreter, err)
	}
	for name, b := range bad {
		b.Message = text.Printable(b.Message)
		bad[name] = b
	}
	return bad, nil
}
