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

// Pushes and pulls are measured in a child process that does nothing else, so that they alone need its memory.

// childMarker is the environment variable that makes this program run as the child.
const childMarker = "CODEFLEET_BENCH_CHILD"

// bucket is the bucket to which directories are pushed.
type bucket struct {
	Endpoint  string `json:"endpoint"`
	Name      string `json:"name"`
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
}

// childSetup is the child's first line of input.
type childSetup struct {
	Bucket bucket `json:"bucket"`
	Cache  string `json:"cache"`
}

// childCall is each further line of input.
type childCall struct {
	Op        string `json:"op"` // push, pull, or task, which changes nothing
	Workspace string `json:"workspace"`
	Dir       string `json:"dir"`
}

// childResponse is the line of output for a call.
type childResponse struct {
	Micros   int64   `json:"micros"`
	Requests int64   `json:"requests"`
	Up       int64   `json:"up"`      // uploaded bytes
	Peak     float64 `json:"peak"`    // the peak resident memory so far, in MB
	Program  float64 `json:"program"` // the pages of the program's file in Peak, which the kernel may drop, in MB
	Error    string  `json:"error,omitempty"`
}

// childMain is the main function of the child. In other processes it returns at once. A program that runs the scenario
// workspace must call it first.
func childMain() {
	if os.Getenv(childMarker) == "" {
		return
	}
	if err := serveChild(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveChild(in io.Reader, out io.Writer) error {
	calls := json.NewDecoder(bufio.NewReader(in))
	var setup childSetup
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
	s := &childStore{store: state.New(objects, opts), trees: map[string]*state.Tree{}}
	responses := json.NewEncoder(out)
	if err := responses.Encode(childResponse{}); err != nil { // the child is ready
		return err
	}
	for {
		var call childCall
		if err := calls.Decode(&call); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		requests, up := counted.requests.Load(), counted.up.Load()
		began := time.Now()
		err := s.run(context.Background(), call)
		r := childResponse{
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

// childStore is the child's store with its trees, as in a worker.
type childStore struct {
	store *state.Store
	trees map[string]*state.Tree // by directory
	tasks int
}

// run pushes or pulls a directory, or runs a task that changes nothing. Each begins with a request for HEAD.
func (s *childStore) run(ctx context.Context, c childCall) error {
	t := s.trees[c.Dir]
	if t == nil {
		var err error
		if t, err = s.store.Tree(c.Dir, state.Ref{Tenant: "bench", Workspace: c.Workspace}); err != nil {
			return err
		}
		s.trees[c.Dir] = t
	}
	var err error
	if c.Op == "push" {
		_, err = s.store.Adopt(ctx, t)
	} else {
		_, err = s.store.Checkout(ctx, t, nil)
	}
	if err != nil || c.Op == "pull" {
		return err
	}
	s.tasks++
	_, err = s.store.Commit(ctx, t, state.CommitOptions{TaskID: "task-" + strconv.Itoa(s.tasks), Attempt: 1})
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

// workspaceChild is a running child.
type workspaceChild struct {
	cmd       *exec.Cmd
	stdin     io.Closer
	stderr    bytes.Buffer
	calls     *json.Encoder
	responses *json.Decoder
	started   float64 // ms until it was ready
	last      childResponse
}

// startWorkspaceChild starts a child with an empty cache. It runs until ctx ends or stop is called.
func (b *run) startWorkspaceChild(ctx context.Context, remote bucket) (*workspaceChild, error) {
	began := time.Now()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &workspaceChild{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(p.cmd.Environ(), childMarker+"=1")
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that a Ctrl-C at the terminal ends only ctx
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
	err = p.calls.Encode(childSetup{remote, b.NewDir()})
	if err == nil {
		err = p.responses.Decode(&p.last)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the child process: %w", err), p.stop())
	}
	p.started = bench.Since(began)
	return p, nil
}

// call runs one operation and returns the milliseconds that it took.
func (p *workspaceChild) call(op, workspace, dir string) (float64, error) {
	if err := p.calls.Encode(childCall{op, workspace, dir}); err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	p.last = childResponse{}
	if err := p.responses.Decode(&p.last); err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	if p.last.Error != "" {
		return 0, fmt.Errorf("%s: %s", op, p.last.Error)
	}
	return float64(p.last.Micros) / 1000, nil
}

// stop ends the process and waits for it.
func (p *workspaceChild) stop() error {
	p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("child process: %w: %s", err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return nil
}
