package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/executor/executortest"
	"github.com/codefleet/codefleet/internal/up"
	"github.com/codefleet/codefleet/internal/up/uptest"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	os.Exit(m.Run())
}

// TestJoinsAndDrains checks that a worker that joins a fleet runs its tasks, and lets a running task finish after the
// stop signal.
func TestJoinsAndDrains(t *testing.T) {
	runsc := executortest.Runsc(t)
	f, c := uptest.Start(t, up.Options{Config: uptest.Config(t)})
	data, err := os.MkdirTemp("", "cf") //nolint:usetesting // a short path, because sockets are created below
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	ctx, stop := context.WithCancel(t.Context())
	var log bytes.Buffer
	code := make(chan int, 1)
	file := uptest.File(t, f)
	go func() {
		env := []string{
			"HOME=" + data, "CODEFLEET_DATA=" + data, "CODEFLEET_EXECUTION_RUNSC=" + runsc,
			"CODEFLEET_WORKER_NAME=second",
		}
		code <- run(ctx, []string{"--fleet", file}, env, io.Discard, &log)
	}()
	rec, err := c.Submit(t.Context(), client.Submission{
		Task: client.Task{Code: "import time\nprint('on', flush=True)\ntime.sleep(0.5)\n6*7"},
	})
	if err != nil {
		t.Fatal(err)
	}
	rec, err = c.Watch(t.Context(), rec.TaskID, 0, func(e client.Event) error {
		if e.Text != "" {
			stop()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(rec.Result.Result) != "42" || rec.Result.Worker != "second" {
		t.Errorf("Watch = %+v, want 42 from the worker second", rec.Result)
	}
	if got := <-code; got != 0 {
		t.Errorf("exit code %d, want 0: %s", got, log.String())
	}
	if left, err := filepath.Glob(filepath.Join(data, "w0", "boxes", "*")); err != nil || len(left) > 0 {
		t.Errorf("boxes left after the exit = %v, %v, want none, nil", left, err)
	}
}

func TestUsage(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		args []string
		env  []string
		want string
	}{
		"no fleet":        {nil, nil, "the address of the queue is missing"},
		"flag":            {[]string{"-nonsense"}, nil, "not defined: --nonsense (worker --help lists the flags)"},
		"no value":        {[]string{"-nats"}, nil, "flag needs an argument: --nats (worker --help lists the flags)"},
		"argument":        {[]string{"now"}, nil, `unexpected argument "now"`},
		"unknown setting": {nil, []string{"CODEFLEET_WORKER_SLOT=1"}, "CODEFLEET_WORKER_SLOTS"},
		"no store":        {[]string{"-nats", "nats://127.0.0.1:1"}, nil, "object store is missing: give s3.endpoint"},
		"no file": {
			[]string{"-nats", "nats://127.0.0.1:1"},
			[]string{"CODEFLEET_EXECUTION_REQUIREMENTS=none.txt"},
			"execution.requirements: none.txt: no such file or directory",
		},
		"no credentials": {
			[]string{"-nats", "nats://127.0.0.1:1"},
			[]string{"CODEFLEET_NATS_CREDS=none.creds"},
			"CODEFLEET_NATS_CREDS: nats.creds: none.creds: no such file or directory",
		},
		"address in use": {
			[]string{"-nats", "nats://127.0.0.1:1"},
			[]string{
				"CODEFLEET_TELEMETRY_ADDR=" + taken.Addr().String(), "CODEFLEET_DATA=" + t.TempDir(),
				"CODEFLEET_S3_ENDPOINT=http://127.0.0.1:1",
			},
			taken.Addr().String() + " is in use by another process: stop it, or choose another address with " +
				"telemetry.addr",
		},
	} {
		var out strings.Builder
		if code := run(t.Context(), c.args, append(c.env, "HOME=/nonexistent"), io.Discard, &out); code != 2 ||
			!strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "usage: ") {
			t.Errorf("%s: exit code %d, output %q, want 2 and %q without the prefix \"usage:\"",
				name, code, out.String(), c.want)
		}
	}
}

// TestVersion checks that --version prints the version, also without settings.
func TestVersion(t *testing.T) {
	var out, log strings.Builder
	if code := run(t.Context(), []string{"--version"}, nil, &out, &log); code != 0 || log.String() != "" ||
		!strings.HasPrefix(out.String(), "worker dev (go") {
		t.Errorf("--version: exit code %d, output %q, log %q, want 0 and worker dev", code, out.String(), log.String())
	}
}
