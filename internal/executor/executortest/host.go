// Package executortest contains the contract tests for drivers of package executor, and Host, a driver without
// isolation for other tests.
package executortest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/codefleet/codefleet/internal/executor"
)

// Host runs programs as processes of this machine, without isolation, for tests only. If it runs as root, the
// programs of each box have their own user, so that the runner's privileges are as in a real box.
type Host struct {
	Python string // default /usr/bin/python3
}

// users counts the users of boxes. The process id is part of each user id, to distinguish concurrent test processes.
var users atomic.Int64

// Probe describes the driver. Its Info has no Tier, because Host does not isolate.
func (h Host) Probe(ctx context.Context) (executor.Info, error) {
	return executor.Info{Driver: "host", Limits: "rlimit", Environment: "host"}, nil
}

// Create makes the box's scratch directory and, as root, gives the workspace to the box's user.
func (h Host) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	guest := executor.DefaultGuest()
	if h.Python != "" {
		guest.Python = h.Python
	}
	guest.Workspace = spec.Workspace
	guest.SeparateUser = os.Getuid() == 0
	guest.UID = 1<<30 + os.Getpid()%(1<<20)*1<<8 + int(users.Add(1))%(1<<8)
	for _, m := range spec.Mounts {
		if m.Target == guest.Catalogue {
			guest.Catalogue = m.Source
		}
	}
	scratch, err := os.MkdirTemp("", scratchPrefix())
	if err != nil {
		return nil, err
	}
	guest.Scratch = []string{scratch}
	if guest.SeparateUser {
		err := errors.Join(
			os.Chown(scratch, guest.UID, guest.UID),
			chownTree(spec.Workspace, guest.UID),
			makeReachable(spec.Workspace),
		)
		if err != nil {
			os.RemoveAll(scratch)
			return nil, err
		}
	}
	return &hostBox{guest: guest, env: spec.Env}, nil
}

// scratchPrefix returns the prefix of this process's scratch directories.
func scratchPrefix() string { return fmt.Sprintf("executortest-%d-", os.Getpid()) }

func chownTree(dir string, uid int) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	})
}

// makeReachable lets all users reach dir: package testing makes dir's parents accessible to one user only.
func makeReachable(dir string) error {
	temp := filepath.Clean(os.TempDir())
	for dir = filepath.Dir(dir); strings.HasPrefix(dir, temp+"/"); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
			return err
		}
	}
	return nil
}

type hostBox struct {
	guest executor.Guest
	env   []string

	mu        sync.Mutex
	sessions  []*hostSession
	destroyed bool
}

// Guest describes the directories of the box.
func (b *hostBox) Guest() executor.Guest { return b.guest }

// OutOfMemory returns false, because a host box has no outer memory limit.
func (b *hostBox) OutOfMemory() bool { return false }

func (b *hostBox) Exec(ctx context.Context, argv []string) (executor.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.destroyed {
		return nil, errors.New("the box is destroyed")
	}
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // boxes outlive calls; Destroy ends them
	cmd.Env, cmd.Dir = b.env, b.guest.Workspace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	stderr, err3 := cmd.StderrPipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &hostSession{cmd: cmd, stdin: stdin, stdout: stdout, stderr: stderr}
	b.sessions = append(b.sessions, s)
	return s, nil
}

// Destroy kills the box's processes and all their descendants.
func (b *hostBox) Destroy(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.destroyed = true
	for _, s := range b.sessions {
		s.kill()
	}
	return os.RemoveAll(b.guest.Scratch[0])
}

type hostSession struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
	stderr io.Reader

	mu     sync.Mutex
	waited bool
}

func (s *hostSession) Stdin() io.WriteCloser { return s.stdin }
func (s *hostSession) Stdout() io.Reader     { return s.stdout }
func (s *hostSession) Stderr() io.Reader     { return s.stderr }

func (s *hostSession) Wait() (int, error) {
	// The process is reaped under the lock, so that kill cannot hit another process with the same id. Both streams
	// have ended, so this does not take long.
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.cmd.Wait()
	s.waited = true
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return s.cmd.ProcessState.ExitCode(), nil
}

// kill kills the process and its descendants, unless it has ended.
func (s *hostSession) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waited {
		return
	}
	pid := s.cmd.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP) // so that it cannot start other processes
	for {
		below := descendants(pid)
		if len(below) == 0 {
			break
		}
		for _, p := range below {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// descendants returns the running descendants of pid.
func descendants(pid int) []int {
	children := map[int][]int{}
	for _, p := range processes() {
		if p.state != "Z" {
			children[p.parent] = append(children[p.parent], p.pid)
		}
	}
	var found []int
	for next := []int{pid}; len(next) > 0; {
		below := children[next[0]]
		found, next = append(found, below...), append(next[1:], below...)
	}
	return found
}

type process struct {
	pid, parent int
	state       string
}

// processes lists the processes of this machine.
func processes() []process {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	var all []process
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
		fields := strings.Fields(rest)
		pid, err1 := strconv.Atoi(strings.Split(name, "/")[2])
		parent, err2 := strconv.Atoi(fields[1])
		if err := errors.Join(err1, err2); err != nil {
			panic(fmt.Sprintf("parse %s: %v", name, err))
		}
		all = append(all, process{pid: pid, parent: parent, state: fields[0]})
	}
	return all
}
