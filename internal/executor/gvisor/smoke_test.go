package gvisor

import (
	"github.com/codefleet/codefleet/internal/executor"
	"io"
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	d, err := New(Options{Runsc: "/root/go/bin/runsc", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	st := time.Now()
	info, err := d.Probe(t.Context())
	t.Log(info, err, time.Since(st))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 5; i++ {
		st = time.Now()
		b, err := d.Create(t.Context(), executor.Spec{Name: "x", Owner: "o", Workspace: t.TempDir(), MemoryMB: 256, CPUs: 1})
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.Exec(t.Context(), []string{"/usr/bin/python3", "-I", "-S", "-c", "import os;os.write(1,b'r');os.read(0,1)"})
		if err != nil {
			t.Fatal(err)
		}
		var one [1]byte
		io.ReadFull(s.Stdout(), one[:])
		t.Log("ready", string(one[:]), time.Since(st))
		t.Log(b.(*box).Stats(t.Context()))
		pids, _ := processesOf(b.(*box).dir)
		t.Log(pids)
		st = time.Now()
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Log("destroy", time.Since(st))
		rest, _ := io.ReadAll(s.Stderr())
		c, err := s.Wait()
		t.Log(c, err, string(rest))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
