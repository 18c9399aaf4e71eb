package mcp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/text"
)

// process is a server that we have started, with its descendants in one process group.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	done   chan struct{}
	err    error // valid once done is closed
	once   sync.Once
}

// grace is how long a server may take to end by itself, and again after SIGTERM.
const grace = 2 * time.Second

// start begins the process; said gets the lines of its standard error.
func startProcess(s Server, path string, said func(line string)) (*process, error) {
	cmd := exec.Command(s.Command, s.Args...) //nolint:noctx // stop ends it, politely first
	cmd.Dir = s.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	home, err := runAs(cmd, s.User)
	if err != nil {
		return nil, err
	}
	cmd.Env = environment(s, path, home)
	stderr := &lineLog{emit: said}
	cmd.Stderr = stderr
	cmd.WaitDelay = grace
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, write, err := os.Pipe() // ours, so that Wait does not close it under the reader
	if err != nil {
		return nil, err
	}
	cmd.Stdout = write
	err = cmd.Start()
	_ = write.Close() // the child has its own
	if err != nil {
		_ = stdout.Close()
		if strings.Contains(s.Command, " ") && errors.Is(err, exec.ErrNotFound) {
			err = fmt.Errorf("%w (a command is a program's name alone: the rest goes into args)", err)
		}
		return nil, fmt.Errorf("start %s: %w", s.Command, err)
	}
	p := &process{cmd: cmd, stdin: stdin, stdout: stdout, done: make(chan struct{})}
	go func() { // ends with the process, which stop and its own death end
		defer close(p.done)
		p.err = cmd.Wait()
		stderr.flush()            // last words without a line's end
		p.signal(syscall.SIGKILL) // whatever it left behind, which may hold the pipe
	}()
	return p, nil
}

// runAs makes the process another user's, and returns that user's home.
func runAs(cmd *exec.Cmd, name string) (home string, err error) {
	if name == "" {
		if me, err := user.Current(); err == nil {
			return me.HomeDir, nil
		}
		return "/", nil
	}
	if os.Geteuid() != 0 {
		return "", fmt.Errorf("run as %s: only root can", name)
	}
	who, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	uid, errUID := strconv.ParseUint(who.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(who.Gid, 10, 32)
	if err := errors.Join(errUID, errGID); err != nil {
		return "", err
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}}
	return who.HomeDir, nil
}

// environment is all that the process gets: what it needs to start, and what is configured. Our
// own environment may hold the fleet's secrets.
func environment(s Server, path, home string) []string {
	env := []string{"PATH=" + cmp.Or(path, "/usr/local/bin:/usr/bin:/bin"), "HOME=" + home, "LANG=C.UTF-8"}
	for k, v := range s.Env {
		env = append(env, k+"="+v)
	}
	slices.Sort(env[3:])
	return env
}

func (p *process) signal(s syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, s) // it may be gone
}

// stop ends the process: its input, then SIGTERM, then SIGKILL, to the whole group.
func (p *process) stop() {
	p.once.Do(func() {
		_ = p.stdin.Close()
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			timer := time.NewTimer(grace)
			select {
			case <-p.done:
			case <-timer.C:
				p.signal(s)
			}
			timer.Stop()
		}
		<-p.done
		_ = p.stdout.Close()
	})
}

// exit says how the process ended; nil while it runs, and when it ended well.
func (p *process) exit() error {
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("the server ended: %w", p.err)
		}
	default:
	}
	return nil
}

// lineLog logs what a server writes to standard error, a line at a time, bounded in length and rate.
type lineLog struct {
	emit    func(line string)
	buf     []byte
	window  time.Time
	written int
}

const (
	maxLine  = 2000 // bytes
	maxLines = 600  // a minute
)

func (w *lineLog) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte("\n"))
		if room := maxLine - len(w.buf); room > 0 {
			w.buf = append(w.buf, line[:min(room, len(line))]...)
		}
		if ended {
			w.flush()
		}
		p = rest
	}
	return n, nil
}

func (w *lineLog) flush() {
	if now := time.Now(); now.Sub(w.window) > time.Minute {
		w.window, w.written = now, 0
	}
	if w.written++; w.written <= maxLines && len(bytes.TrimSpace(w.buf)) > 0 {
		w.emit(text.Printable(string(bytes.ToValidUTF8(w.buf, []byte("?")))))
	}
	w.buf = w.buf[:0]
}
