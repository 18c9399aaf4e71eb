package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/executor"
)

// launch starts cmd in the group. cmd dies with this process, or more exactly with the thread that starts it, which is
// its parent to the kernel. So no goroutine may end while it is locked to its thread: that ends the thread, and would
// kill the boxes that the thread has started.
func launch(cmd *exec.Cmd, g group) (*session, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return newSession(cmd, func(cmd *exec.Cmd) error {
		if len(g.dirs) == 0 {
			return cmd.Start()
		}
		return startInside(cmd, g)
	})
}

// startInside starts cmd traced, so that the kernel stops it at its first instruction, and lets it continue once
// it is in the group. Thus none of its children can start outside the group.
func startInside(cmd *exec.Cmd, g group) error {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	var status syscall.WaitStatus
	err := wait4(pid, &status)
	if err == nil && !status.Stopped() {
		_ = cmd.Wait() // releases the pipes; wait4 has reaped the process
		return fmt.Errorf("trace new process: it ended with status %#x", int(status))
	}
	err = errors.Join(err, g.add(pid))
	if err == nil {
		err = syscall.PtraceDetach(pid)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("trace new process: %w", err)
	}
	return nil
}

// wait4 waits for a change of a child's state. It repeats the system call if a signal interrupts it.
func wait4(pid int, status *syscall.WaitStatus) error {
	for {
		if _, err := syscall.Wait4(pid, status, 0, nil); err != syscall.EINTR {
			return err
		}
	}
}

// exitCode returns the exit code of a process, or 128 + the signal that killed it.
func exitCode(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// processesOf lists the processes of the boxes whose directory is dir or below it.
func processesOf(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && pid != os.Getpid() && belongsTo(pid, dir) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// belongsTo reports whether a process has the argument --root with dir or a directory below it. Other arguments
// do not count: those of an editor may name a file of a box. Nor do processes in containers, where dir is another
// directory.
func belongsTo(pid int, dir string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	args, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return false // it has ended, or belongs to another user
	}
	for arg := range bytes.SplitSeq(args, []byte{0}) {
		root, found := strings.CutPrefix(string(arg), "--root=")
		if found && (root == dir || strings.HasPrefix(root, dir+"/")) {
			return !elsewhere(proc, args)
		}
	}
	return false
}

// killSandbox kills the sandbox process of a box, but not its parents.
func killSandbox(dir string) error {
	pids, err := processesOf(dir)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		args, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if isSandbox(args) {
			err = errors.Join(err, kill(pid, dir, nil))
		}
	}
	return err
}

// killAll kills the processes of dir until there are none.
func killAll(ctx context.Context, dir string) error {
	for {
		pids, err := processesOf(dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := kill(pid, dir, func(fd int) error { return waitPidfd(ctx, fd, pid) }); err != nil {
				return err
			}
		}
	}
}

// kill kills one process if it still belongs to dir, and then calls wait, unless it is nil, with the process's
// pidfd. It opens the pidfd before it checks the process, so that it cannot kill another one with the same id.
func kill(pid int, dir string, wait func(fd int) error) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !belongsTo(pid, dir) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	if wait == nil {
		return nil
	}
	return wait(fd)
}

// waitPidfd waits until the process has ended. It need not be a child.
func waitPidfd(ctx context.Context, fd, pid int) error {
	for {
		const interval = 100 * time.Millisecond
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(interval.Milliseconds()))
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for process %d: %w", pid, context.Cause(ctx))
		}
	}
}

// processStats adds up the memory of the box's processes, for boxes without a cgroup.
func processStats(dir string) (executor.Stats, error) {
	pids, err := processesOf(dir)
	if err != nil {
		return executor.Stats{}, err
	}
	var stats executor.Stats
	for _, pid := range pids {
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(rollup)) {
			if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "Pss:" {
				kb, _ := strconv.ParseFloat(fields[1], 64)
				stats.MemoryMB += kb / 1024
			}
		}
	}
	return stats, nil
}
