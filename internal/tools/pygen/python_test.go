package pygen

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/codefleet/codefleet/internal/pythontest"
	"github.com/codefleet/codefleet/internal/tools"
)

// python is an interpreter that imports generated packages from dir/servers.
type python struct {
	t   testing.TB
	dir string
	in  io.WriteCloser
	out *bufio.Reader
}

// request is a call of a generated function, or a program whose inputs are Kwargs, for testdata/harness.py.
type request struct {
	Program  string         `json:"program,omitempty"`
	Server   string         `json:"server"`
	Function string         `json:"function"`
	Args     []any          `json:"args"`
	Kwargs   map[string]any `json:"kwargs"`
}

// response is what the client of testdata/client would send, or the Python error.
type response struct {
	Value struct {
		Server, Tool, Hash string
		Arguments          json.RawMessage
	}
	Doc, Error, Trace string
}

func startPython(tb testing.TB) *python {
	tb.Helper()
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	cmd := exec.Command(pythontest.Find(tb), "-S", "-B", filepath.Join(testdata, "harness.py"))
	cmd.Env = []string{"PYTHONPATH=" + dir + ":" + testdata, "LANG=C.UTF-8"}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &python{t: tb, dir: dir, in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

func (p *python) write(pkg Package) {
	p.t.Helper()
	if _, err := Write(filepath.Join(p.dir, "servers"), pkg); err != nil {
		p.t.Fatal(err)
	}
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func (p *python) call(t failer, r request) response {
	t.Helper()
	if r.Args == nil {
		r.Args = []any{}
	}
	if r.Kwargs == nil {
		r.Kwargs = map[string]any{}
	}
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatalf("encode request = %v, want nil", err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		t.Fatalf("write to python = %v, want nil", err)
	}
	line, err = p.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("read the response of python = %v, want nil", err)
	}
	var out response
	if err := json.Unmarshal(line, &out); err != nil {
		t.Fatalf("decode response = %v, want nil: %s", err, line)
	}
	return out
}

func def(name, input string) tools.Definition {
	return tools.Definition{Name: name, InputSchema: json.RawMessage(input)}
}
