package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// process is a started server. It and its descendants form one process group.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout io.ReadCloser

	started time.Time
	program map[string]os.FileInfo // the files of its command line, as they were before it started

	done chan struct{}
	err  error // valid once done is closed
	once sync.Once

	writeTimeout time.Duration
	deaf         atomic.Bool // a write failed: part of a message may be lost, and later messages with it
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
	read, stdin, err := os.Pipe() // not StdinPipe, because its type has no deadline
	if err != nil {
		return nil, err
	}
	stdout, write, err := os.Pipe() // not StdoutPipe, which Wait closes while the reader may still use it
	if err != nil {
		_, _ = read.Close(), stdin.Close()
		return nil, err
	}
	cmd.Stdin, cmd.Stdout = read, write
	program := programFiles(cmd)
	err = cmd.Start()
	_, _ = read.Close(), write.Close() // the child has copies
	if err != nil {
		_, _ = stdin.Close(), stdout.Close()
		if strings.Contains(s.Command, " ") && errors.Is(err, exec.ErrNotFound) {
			err = fmt.Errorf("%w (command must not contain arguments: put them in args)", err)
		}
		if e, ok := errors.AsType[*fs.PathError](err); ok && e.Path == s.Command { // named below
			err = e.Err
		}
		return nil, fmt.Errorf("start %s: %w", s.Command, err)
	}
	p := &process{
		cmd: cmd, stdin: stdin, stdout: stdout, done: make(chan struct{}), writeTimeout: s.Limits.CallTimeout,
		started: time.Now(), program: program,
	}
	go func() { // ends with the process
		defer close(p.done)
		p.err = cmd.Wait()
		stderr.flush()            // the last line may lack a newline
		p.signal(syscall.SIGKILL) // remaining descendants may hold the pipe open
	}()
	return p, nil
}

// programFiles returns the regular files that a command line names, by their paths.
func programFiles(cmd *exec.Cmd) map[string]os.FileInfo {
	files := map[string]os.FileInfo{}
	for _, path := range append([]string{cmd.Path}, cmd.Args[1:]...) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(cmd.Dir, path)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			files[path] = info
		}
	}
	return files
}

// replaced reports whether one of the program's files is no longer the one with which the process started.
func (p *process) replaced() bool {
	if p == nil {
		return false
	}
	for path, was := range p.program {
		is, err := os.Stat(path)
		if err == nil && (!os.SameFile(was, is) || !is.ModTime().Equal(was.ModTime()) || is.Size() != was.Size()) {
			return true
		}
	}
	return false
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

// Write writes a message to the server's standard input. A server that does not read it within writeTimeout gets no
// more messages and is stopped: otherwise the caller, which the SDK lets wait without a limit, would never return.
func (p *process) Write(message []byte) (int, error) {
	if p.deaf.Load() {
		return 0, errDeaf
	}
	n, err := 0, p.stdin.SetWriteDeadline(time.Now().Add(p.writeTimeout))
	if err == nil {
		n, err = p.stdin.Write(message)
	}
	if err != nil {
		p.deaf.Store(true)
		go p.stop() // ends after at most two graces; mcpSession.close waits for it
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errDeaf
	}
	return n, err
}

// Close closes the server's standard input.
func (p *process) Close() error { return p.stdin.Close() }

var errDeaf = errors.New("the server does not read its input")

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

// lineLog emits the lines that a server writes to standard error. It limits their length to maxLine and one byte, which
// shows that a line is longer.
type lineLog struct {
	emit func(line string)
	buf  []byte
}

const (
	maxLine  = 2000 // bytes
	maxLines = 600  // per minute
)

// lineRate limits the rate of the lines that are logged for a process.
type lineRate struct {
	mu      sync.Mutex
	window  time.Time // start of the current minute
	written int       // lines in that minute
}

// allow reports whether another line may be logged.
func (r *lineRate) allow() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.window) > time.Minute {
		r.window, r.written = now, 0
	}
	r.written++
	return r.written <= maxLines
}

func (w *lineLog) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte("\n"))
		if room := maxLine + 1 - len(w.buf); room > 0 {
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
	if len(bytes.TrimSpace(w.buf)) > 0 {
		w.emit(string(w.buf))
	}
	w.buf = w.buf[:0]
}
