package mcp

import (
	"bytes"
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

// process is a started server. It and its descendants form one process group.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	done   chan struct{}
	err    error // valid once done is closed
	once   sync.Once
}

// grace is how long a server may take to exit when its input ends, and again after SIGTERM.
const grace = 2 * time.Second

// startProcess starts the server's process. onStderr receives the lines of its standard error.
func startProcess(s Server, onStderr func(line string)) (*process, error) {
	cmd := exec.Command(s.Command, s.Args...) //nolint:noctx // stop ends it gracefully
	cmd.Dir = s.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	home, err := runAs(cmd, s.User)
	if err != nil {
		return nil, err
	}
	cmd.Env = environment(s, home)
	stderr := &lineLog{emit: onStderr}
	cmd.Stderr = stderr
	cmd.WaitDelay = grace
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, write, err := os.Pipe() // not StdoutPipe, which Wait closes while the reader may still use it
	if err != nil {
		return nil, err
	}
	cmd.Stdout = write
	err = cmd.Start()
	_ = write.Close() // the child has a copy
	if err != nil {
		_ = stdout.Close()
		if strings.Contains(s.Command, " ") && errors.Is(err, exec.ErrNotFound) {
			err = fmt.Errorf("%w (command must not contain arguments: put them in args)", err)
		}
		return nil, fmt.Errorf("start %s: %w", s.Command, err)
	}
	p := &process{cmd: cmd, stdin: stdin, stdout: stdout, done: make(chan struct{})}
	go func() { // ends with the process
		defer close(p.done)
		p.err = cmd.Wait()
		stderr.flush()            // the last line may lack a newline
		p.signal(syscall.SIGKILL) // remaining descendants may hold the pipe open
	}()
	return p, nil
}

// runAs sets the user of the process and returns the user's home directory.
func runAs(cmd *exec.Cmd, name string) (home string, err error) {
	if name == "" {
		if current, err := user.Current(); err == nil {
			return current.HomeDir, nil
		}
		return "/", nil
	}
	if os.Geteuid() != 0 {
		return "", fmt.Errorf("run as %s: requires root", name)
	}
	account, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	uid, errUID := strconv.ParseUint(account.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(account.Gid, 10, 32)
	if err := errors.Join(errUID, errGID); err != nil {
		return "", err
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}}
	return account.HomeDir, nil
}

// environment returns the process's environment: PATH, HOME, LANG and the configured variables. It inherits
// nothing, because this process's environment may contain the fleet's secrets.
func environment(s Server, home string) []string {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "LANG=C.UTF-8"}
	for k, v := range s.Env {
		env = append(env, k+"="+v)
	}
	slices.Sort(env[3:])
	return env
}

func (p *process) signal(s syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, s) // fails if the group is gone
}

// stop ends the process group: it closes the input, then sends SIGTERM, then SIGKILL.
func (p *process) stop() {
	p.once.Do(func() {
		_ = p.stdin.Close()
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			select {
			case <-p.done:
			case <-time.After(grace):
				p.signal(s)
			}
		}
		<-p.done
		_ = p.stdout.Close()
	})
}

// exit returns the error of the process if it has failed, or nil if it still runs or has succeeded.
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

// lineLog emits the lines that a server writes to standard error. It limits their length and rate.
type lineLog struct {
	emit    func(line string)
	buf     []byte
	window  time.Time // start of the current minute
	written int       // lines in that minute
}

const (
	maxLine  = 2000 // bytes
	maxLines = 600  // per minute
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
