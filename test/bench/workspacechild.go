package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/s3"
)

// The workspace engine is measured in a separate process that does nothing else, so that the process's resident memory
// is the engine's.

// engineMarker is the environment variable that makes a process an engine.
const engineMarker = "CODEFLEET_BENCH_ENGINE"

// bucket is the bucket to which directories are pushed.
type bucket struct {
	Endpoint  string `json:"endpoint"`
	Name      string `json:"name"`
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
}

// engineSetup is the engine's first line of input.
type engineSetup struct {
	Bucket bucket `json:"bucket"`
	Cache  string `json:"cache"`
}

// engineCall is each further line of input.
type engineCall struct {
	Op        string `json:"op"` // push, pull, or task, which changes nothing
	Workspace string `json:"workspace"`
	Dir       string `json:"dir"`
}

// engineResponse is the line of output for a call.
type engineResponse struct {
	Micros   int64   `json:"micros"`
	Requests int64   `json:"requests"`
	Up       int64   `json:"up"`      // uploaded bytes
	Peak     float64 `json:"peak"`    // the peak resident memory so far, in MB
	Program  float64 `json:"program"` // the pages of the program's file in Peak, which the kernel may drop, in MB
	Error    string  `json:"error,omitempty"`
}

// engineMain is the main function of the engine's process. In other processes it returns at once. A program that runs
// the scenario workspace must call it first.
func engineMain() {
	if os.Getenv(engineMarker) == "" {
		return
	}
	if err := serveEngine(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveEngine(in io.Reader, out io.Writer) error {
	calls := json.NewDecoder(bufio.NewReader(in))
	var setup engineSetup
	if err := calls.Decode(&setup); err != nil {
		return err
	}
	counted := &countingTransport{next: s3.NewTransport()}
	b := setup.Bucket
	objects, err := s3.Open(s3.Options{
		Endpoint: b.Endpoint, Bucket: b.Name, AccessKey: b.AccessKey, SecretKey: b.SecretKey, Transport: counted,
	})
	if err != nil {
		return err
	}
	opts := state.Options{
		CacheDir: setup.Cache, Quota: state.Quota{Bytes: 10 << 30, Files: 1_000_000, Largest: 1 << 30},
	}
	if guest := executor.DefaultGuest(); os.Geteuid() == 0 { // as in a worker
		opts.Owner = &state.Owner{UID: guest.UID, GID: guest.UID}
	}
	e := &pushEngine{store: state.New(objects, opts), trees: map[string]*state.Tree{}}
	responses := json.NewEncoder(out)
	if err := responses.Encode(engineResponse{}); err != nil { // the engine is ready
		return err
	}
	for {
		var call engineCall
		if err := calls.Decode(&call); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		requests, up := counted.requests.Load(), counted.up.Load()
		began := time.Now()
		err := e.run(context.Background(), call)
		r := engineResponse{
			Micros: time.Since(began).Microseconds(), Requests: counted.requests.Load() - requests,
			Up:      counted.up.Load() - up,
			Peak:    bench.Kilobytes("/proc/self/status", "VmHWM") / 1024,
			Program: bench.Kilobytes("/proc/self/status", "RssFile") / 1024,
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := responses.Encode(r); err != nil {
			return err
		}
	}
}

// pushEngine is a worker's store with its trees.
type pushEngine struct {
	store *state.Store
	trees map[string]*state.Tree // by directory
	tasks int
}

// run pushes or pulls a directory, or runs a task that changes nothing. Each begins with a request for HEAD.
func (e *pushEngine) run(ctx context.Context, c engineCall) error {
	t := e.trees[c.Dir]
	if t == nil {
		var err error
		if t, err = e.store.Tree(c.Dir, state.Ref{Tenant: "bench", Workspace: c.Workspace}); err != nil {
			return err
		}
		e.trees[c.Dir] = t
	}
	var err error
	if c.Op == "push" {
		_, err = e.store.Adopt(ctx, t)
	} else {
		_, err = e.store.Checkout(ctx, t, nil)
	}
	if err != nil || c.Op == "pull" {
		return err
	}
	e.tasks++
	_, err = e.store.Commit(ctx, t, state.CommitOptions{TaskID: "task-" + strconv.Itoa(e.tasks), Attempt: 1})
	return err
}

// countingTransport counts requests and the bytes of their bodies.
type countingTransport struct {
	next         http.RoundTripper
	requests, up atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (t *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.requests.Add(1)
	t.up.Add(max(0, r.ContentLength))
	return t.next.RoundTrip(r)
}

// engineProcess is a running engine.
type engineProcess struct {
	cmd       *exec.Cmd
	stdin     io.Closer
	stderr    bytes.Buffer
	calls     *json.Encoder
	responses *json.Decoder
	started   float64 // ms until it was ready
	last      engineResponse
}

// startEngine starts an engine with an empty cache. It runs until ctx ends or stop is called.
func (b *run) startEngine(ctx context.Context, remote bucket) (*engineProcess, error) {
	began := time.Now()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &engineProcess{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(p.cmd.Environ(), engineMarker+"=1")
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C must only end ctx
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.stdin, p.calls, p.responses = in, json.NewEncoder(in), json.NewDecoder(out)
	err = p.calls.Encode(engineSetup{remote, b.NewDir()})
	if err == nil {
		err = p.responses.Decode(&p.last)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the engine: %w", err), p.stop())
	}
	p.started = bench.Since(began)
	return p, nil
}

// call runs one operation and returns the milliseconds that it took.
func (p *engineProcess) call(op, workspace, dir string) (float64, error) {
	if err := p.calls.Encode(engineCall{op, workspace, dir}); err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	p.last = engineResponse{}
	if err := p.responses.Decode(&p.last); err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	if p.last.Error != "" {
		return 0, fmt.Errorf("%s: %s", op, p.last.Error)
	}
	return float64(p.last.Micros) / 1000, nil
}

// stop ends the process and waits for it.
func (p *engineProcess) stop() error {
	p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("workspace engine: %w: %s", err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return nil
}
