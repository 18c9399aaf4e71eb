package microsandbox

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// exitKilled is the exit code of a process that was killed by a signal, which the agent does not name. It is also the
// exit code of processes whose box has ended.
const exitKilled = 128 + int(syscall.SIGKILL)

// session is one process in a box, and the connection that keeps it alive.
type session struct {
	agent   *agent
	started chan error // buffered: the outcome of the start
	done    chan struct{}

	outReader, errReader *io.PipeReader
	outWriter, errWriter *io.PipeWriter

	// Set before done is closed.
	code int
	err  error
}

// start runs argv over a new connection, and waits for the agent to confirm the start.
func start(ctx context.Context, socket string, argv, env []string) (*session, error) {
	a, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	s := &session{agent: a, started: make(chan error, 1), done: make(chan struct{})}
	s.outReader, s.outWriter = io.Pipe()
	s.errReader, s.errWriter = io.Pipe()
	if err := a.send(flagStart, kindExec, newExecRequest(argv, env)); err != nil {
		a.conn.Close()
		return nil, err
	}
	go s.follow() // ends with the connection; stop waits for it
	select {
	case err := <-s.started:
		if err != nil {
			s.stop()
			return nil, err
		}
		return s, nil
	case <-ctx.Done():
		s.stop()
		return nil, context.Cause(ctx)
	}
}

// newExecRequest requests a process that runs as root in the root directory, with pipes as its standard streams.
func newExecRequest(argv, env []string) execRequest {
	return execRequest{
		Cmd: argv[0], Args: argv[1:], Env: env, Cwd: "/", User: "0:0", Rlimits: []rlimit{{Resource: "core"}},
	}
}

// follow reads messages until the end of the process.
func (s *session) follow() {
	s.code, s.err = s.readMessages(bufio.NewReaderSize(s.agent.conn, 64<<10))
	select {
	case s.started <- cmp.Or(s.err, errors.New("the box ended before the process started")):
	default:
	}
	s.disconnect()
	close(s.done)
}

// readMessages reads messages until the process ends, and returns its exit code. If the connection ends first, the
// box has ended or stop was called.
func (s *session) readMessages(r io.Reader) (code int, err error) {
	for {
		m, err := readFrame(r)
		if errors.Is(err, errProtocol) {
			return 0, err
		}
		if err != nil {
			return exitKilled, nil //nolint:nilerr // the connection has ended
		}
		if m.id != s.agent.id {
			continue // concerns the whole sandbox
		}
		code, ended, err := s.handle(m)
		if ended || err != nil {
			return code, err
		}
	}
}

// handle handles one message. If ended is true, the process has ended with the exit code.
func (s *session) handle(m message) (code int, ended bool, err error) {
	switch m.kind {
	case kindStarted:
		select {
		case s.started <- nil:
		default:
		}
	case kindStdout:
		return s.forward(s.outWriter, m)
	case kindStderr:
		return s.forward(s.errWriter, m)
	case kindExited:
		var e exited
		if err := m.decode(&e); err != nil || e.Code == nil || *e.Code > 255 {
			return 0, true, fmt.Errorf("decode exit code: %w", cmp.Or(err, errProtocol))
		}
		if *e.Code < 0 {
			return exitKilled, true, nil
		}
		return int(*e.Code), true, nil
	case kindFailed, kindAnyError:
		failed := &startError{}
		if err := m.decode(failed); err != nil {
			return 0, true, err
		}
		return 0, true, failed
	}
	return 0, false, nil
}

// forward writes output of the process to a pipe.
func (s *session) forward(to io.Writer, m message) (code int, ended bool, err error) {
	var output streamData
	if err := m.decode(&output); err != nil {
		return 0, true, err
	}
	if _, err := to.Write(output.Data); err != nil {
		return exitKilled, true, nil //nolint:nilerr // we closed the session
	}
	return 0, false, nil
}

func (s *session) Stdin() io.WriteCloser { return (*stdin)(s) }
func (s *session) Stdout() io.Reader     { return s.outReader }
func (s *session) Stderr() io.Reader     { return s.errReader }

// Wait waits for the end of the process.
func (s *session) Wait() (int, error) {
	<-s.done
	if s.err != nil {
		return 0, fmt.Errorf("wait for a process in a microsandbox box: %w", s.err)
	}
	return s.code, nil
}

// stop closes the connection, which makes the relay kill the process, and waits for follow to return.
func (s *session) stop() {
	s.disconnect()
	<-s.done
}

func (s *session) disconnect() {
	s.agent.conn.Close()
	_ = s.outWriter.Close() // never fails
	_ = s.errWriter.Close()
}

// stdin is the standard input of a session.
type stdin session

func (s *stdin) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		chunk := p[:min(len(p), stdinChunk)]
		if err := (*session)(s).input(chunk); err != nil {
			return n, err
		}
		n, p = n+len(chunk), p[len(chunk):]
	}
	return n, nil
}

// Close closes the standard input of the process.
func (s *stdin) Close() error { return (*session)(s).input(nil) }

// input sends data to the standard input of the process. nil closes it.
func (s *session) input(data []byte) error {
	select {
	case <-s.done:
		if data == nil {
			return nil
		}
		return fmt.Errorf("write to a process that has ended: %w", os.ErrClosed)
	default:
	}
	return s.agent.send(0, kindStdin, streamData{Data: data})
}
