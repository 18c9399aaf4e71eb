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

// killed is the exit code of a process that a signal ended: the agent does not say which. A box that
// is gone has killed what ran in it.
const killed = 128 + int(syscall.SIGKILL)

// session is one process in a box and the connection that keeps it alive.
type session struct {
	agent   *agent
	started chan error // room for one
	done    chan struct{}

	outReader, errReader *io.PipeReader
	outWriter, errWriter *io.PipeWriter

	// Set before done is closed.
	code int
	err  error
}

// start runs argv over a connection of its own and waits for the agent to say that it runs.
func start(ctx context.Context, socket string, argv, env []string) (*session, error) {
	a, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	s := &session{agent: a, started: make(chan error, 1), done: make(chan struct{})}
	s.outReader, s.outWriter = io.Pipe()
	s.errReader, s.errWriter = io.Pipe()
	if err := a.send(flagStart, "core.exec.request", execRequest(argv, env)...); err != nil {
		a.conn.Close()
		return nil, err
	}
	go s.read() // ends with the connection; stop waits for it
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

// execRequest asks for a process of root's in the root directory, on pipes.
func execRequest(argv, env []string) []field {
	return []field{
		{"cmd", argv[0]},
		{"args", argv[1:]},
		{"env", env},
		{"cwd", "/"},
		{"user", "0:0"},
		{"tty", false},
		{"rlimits", [][]field{{{"resource", "core"}, {"soft", uint64(0)}, {"hard", uint64(0)}}}},
	}
}

// read hands on what the process says until its end.
func (s *session) read() {
	s.code, s.err = s.follow(bufio.NewReaderSize(s.agent.conn, 64<<10))
	select {
	case s.started <- cmp.Or(s.err, errors.New("the box ended before the process began")):
	default:
	}
	s.hangUp()
	close(s.done)
}

// follow returns the exit code. A connection that ends first is the end of the box, or our own doing.
func (s *session) follow(r io.Reader) (code int, err error) {
	for {
		m, err := readFrame(r)
		if errors.Is(err, errProtocol) {
			return 0, err
		}
		if err != nil {
			return killed, nil //nolint:nilerr // the box has gone, and its processes with it
		}
		if m.id != s.agent.lowest {
			continue // of the whole sandbox
		}
		code, over, err := s.take(m)
		if over || err != nil {
			return code, err
		}
	}
}

// take handles one message; over tells that the process has ended.
func (s *session) take(m message) (code int, over bool, err error) {
	switch m.kind {
	case "core.exec.started":
		select {
		case s.started <- nil:
		default:
		}
	case "core.exec.stdout":
		return s.pass(s.outWriter, m)
	case "core.exec.stderr":
		return s.pass(s.errWriter, m)
	case "core.exec.exited":
		fields, err := m.fields()
		code, ok := fields["code"].(int64)
		if err != nil || !ok || code > 255 {
			return 0, true, fmt.Errorf("an exit code: %w", cmp.Or(err, errProtocol))
		}
		if code < 0 {
			return killed, true, nil
		}
		return int(code), true, nil
	case "core.exec.failed", "core.error":
		fields, err := m.fields()
		if err != nil {
			return 0, true, err
		}
		failed := &startError{}
		failed.kind, _ = fields["kind"].(string)
		failed.message, _ = fields["message"].(string)
		return 0, true, failed
	}
	return 0, false, nil
}

// pass hands on output.
func (s *session) pass(to io.Writer, m message) (code int, over bool, err error) {
	fields, err := m.fields()
	if err != nil {
		return 0, true, err
	}
	data, _ := fields["data"].([]byte)
	if _, err := to.Write(data); err != nil {
		return killed, true, nil //nolint:nilerr // stopped by us
	}
	return 0, false, nil
}

// startError is what the agent says of a process that it could not start.
type startError struct{ kind, message string }

func (e *startError) Error() string { return fmt.Sprintf("%.40s: %.400s", e.kind, e.message) }

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

// stop closes the connection, at which the relay kills the process, and waits for the reader's end.
func (s *session) stop() {
	s.hangUp()
	<-s.done
}

func (s *session) hangUp() {
	s.agent.conn.Close()
	_ = s.outWriter.Close() // it never fails
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

// Close tells the process that there is no more.
func (s *stdin) Close() error { return (*session)(s).input(nil) }

func (s *session) input(data []byte) error {
	select {
	case <-s.done:
		if data == nil {
			return nil
		}
		return fmt.Errorf("standard input of a process that has ended: %w", os.ErrClosed)
	default:
	}
	if data == nil {
		data = []byte{}
	}
	return s.agent.send(0, "core.exec.stdin", field{"data", data})
}
