package embedded

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// S3Options configures the embedded S3 server. Dir, Addr, Bucket and the keys are required. The child process gets the
// options as one line of JSON on standard input.
type S3Options struct {
	Dir       string       `json:"dir"`  // data directory, created with mode 0700; only one server may use it
	Addr      string       `json:"addr"` // host:port; port 0 chooses a free one
	AccessKey string       `json:"access_key"`
	SecretKey string       `json:"secret_key"`
	Bucket    string       `json:"bucket"`  // created if it does not exist
	NoSync    bool         `json:"no_sync"` // do not flush objects to disk; for tests and scratch fleets only
	Log       *slog.Logger `json:"-"`
}

// S3 is a running server. It is a child process that executes this binary, because versitygw, the gateway that serves
// S3, changes the working directory and allows one instance per process. The child ends with this process, even if this
// one is killed.
type S3 struct {
	addr     string
	cmd      *exec.Cmd
	lifeline io.Closer     // the child's standard input
	exited   chan struct{} // closed after Wait
	err      error         // from Wait; read it only after exited is closed
	stop     sync.Once
}

const (
	s3Marker     = "CODEFLEET_EMBEDDED" // environment variable that turns a process into the server
	s3StartLimit = 15 * time.Second
	s3StopLimit  = 5 * time.Second
	s3PortTries  = 8
)

// StartS3 starts the server and returns when it accepts requests. main, or TestMain, must call S3Main first.
func StartS3(ctx context.Context, opts S3Options) (*S3, error) {
	if opts.Dir == "" || opts.AccessKey == "" || opts.SecretKey == "" || opts.Bucket == "" {
		return nil, errors.New("start s3: directory, keys and bucket are required")
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start s3: %w", err)
	}
	host, port, err := net.SplitHostPort(opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("start s3 on %q: %w", opts.Addr, err)
	}
	if port != "0" {
		return startS3(ctx, opts)
	}
	// The gateway cannot report a port that the kernel has chosen. So find a free one, and try again if another
	// process takes it first.
	for range s3PortTries {
		if opts.Addr, err = freePort(ctx, host); err != nil {
			return nil, fmt.Errorf("start s3: %w", err)
		}
		var s *S3
		if s, err = startS3(ctx, opts); err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

func freePort(ctx context.Context, host string) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func startS3(ctx context.Context, opts S3Options) (*S3, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start s3: %w", err)
	}
	ready, readyChild, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start s3: %w", err)
	}
	defer ready.Close()
	cmd := exec.Command(exe) //nolint:noctx // the server outlives ctx, Close ends it
	cmd.Args = []string{exe, "embedded-s3"}
	cmd.Env = append(os.Environ(), s3Marker+"=s3") //nolint:forbidigo // the child inherits it
	cmd.ExtraFiles = []*os.File{readyChild}
	output := &logWriter{ctx: context.WithoutCancel(ctx), log: opts.Log}
	cmd.Stdout, cmd.Stderr = output, output
	dieWithParent(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		readyChild.Close()
		return nil, fmt.Errorf("start s3: %w", err)
	}
	s := &S3{addr: opts.Addr, cmd: cmd, lifeline: stdin, exited: make(chan struct{})}
	err = s.spawn()
	readyChild.Close()
	if err != nil {
		return nil, fmt.Errorf("start s3: %w", err)
	}
	//nolint:gosec // the keys go through a pipe that only the child reads
	if err := json.NewEncoder(stdin).Encode(opts); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("start s3: send configuration: %w", err)
	}
	if err := s.awaitReady(ctx, ready); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("start s3 on %s: %w%s", opts.Addr, err, output.lastLine())
	}
	return s, nil
}

// spawn starts the child from a thread that lives as long as the child: the kernel ties the parent-death signal to
// the thread that forked.
func (s *S3) spawn() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		s.err = s.cmd.Wait()
		close(s.exited)
	}()
	return <-started
}

func (s *S3) awaitReady(ctx context.Context, ready *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, s3StartLimit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })()
	line, err := bufio.NewReader(ready).ReadString('\n')
	switch {
	case err == nil && line == "ready\n":
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("not ready: %w", ctx.Err())
	default:
		return errors.New("the server exited before it was ready")
	}
}

// Endpoint returns host:port.
func (s *S3) Endpoint() string { return s.addr }

// Pid returns the process id of the server.
func (s *S3) Pid() int { return s.cmd.Process.Pid }

// Exited returns a channel that is closed when the server has exited, by Close or by itself.
func (s *S3) Exited() <-chan struct{} { return s.exited }

// Close stops the server and waits until it has exited. It kills the server after five seconds. Requests in progress
// may fail.
func (s *S3) Close() error { return s.Stop(s3StopLimit) }

// Stop is like Close with a different time limit, after which it kills the server. Objects whose PUT was acknowledged
// are on disk, unless NoSync is set.
func (s *S3) Stop(limit time.Duration) error {
	s.stop.Do(func() { s.lifeline.Close() })
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-s.exited:
	case <-timeout.C:
		_ = s.cmd.Process.Kill() // fails if the process has just exited
		<-s.exited
	}
	return s.err
}

// logWriter logs the child's output.
type logWriter struct {
	ctx  context.Context //nolint:containedctx // io.Writer takes none
	log  *slog.Logger
	mu   sync.Mutex
	last string
}

func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		if line = strings.TrimSpace(line); line != "" {
			w.last = line
			w.log.DebugContext(w.ctx, "s3 server output", "line", line)
		}
	}
	return len(p), nil
}

// lastLine returns the last line of the output as the end of an error's text: ": " and the line, or "".
func (w *logWriter) lastLine() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == "" {
		return ""
	}
	return ": " + w.last
}
