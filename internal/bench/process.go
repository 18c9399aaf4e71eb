package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Child is a process of one of the fleet's binaries. It has its own process group, so that a Ctrl-C at the terminal
// reaches it only as the signal that follows the end of its context. At a second signal it would end without destroying
// its sandboxes.
type Child struct {
	Stdout io.Reader
	cmd    *exec.Cmd
	stderr bytes.Buffer
	end    context.CancelFunc
}

// stopTime is how long a process may take to end after a signal. Then it is killed.
const stopTime = 40 * time.Second

// StartChild starts a program that keeps its data in the given directory, with additional environment variables
// (NAME=value). The program runs until ctx ends or Stop is called.
func StartChild(ctx context.Context, data string, env []string, path string, args ...string) (*Child, error) {
	ctx, end := context.WithCancel(ctx)
	c := &Child{cmd: exec.CommandContext(ctx, path, args...), end: end}
	c.cmd.Env = append(c.cmd.Environ(), "CODEFLEET_DATA="+data, "LOG_LEVEL=ERROR")
	c.cmd.Env = append(c.cmd.Env, env...)
	c.cmd.Stderr = &c.stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = stopTime
	var err error
	if c.Stdout, err = c.cmd.StdoutPipe(); err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		end()
		return nil, err
	}
	return c, nil
}

// PID returns the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Stop ends the program and waits for it. It must be called once.
func (c *Child) Stop() error {
	c.end()
	err := c.cmd.Wait()
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("%s: %w: %s", filepath.Base(c.cmd.Path), err, bytes.TrimSpace(c.stderr.Bytes()))
}

// upChild is a process of `codefleet up`.
type upChild struct {
	*Child `json:"-"`
	Fleet  string `json:"fleet"` // path of fleet.json
}

// startUp starts `codefleet up` on free ports, with additional environment variables, and waits until it is ready.
func (b *Bench) startUp(ctx context.Context, data string, env ...string) (*upChild, error) {
	const free = "127.0.0.1:0"
	args := append([]string{
		"up", "-o", "json", "--data", data, "--http", free, "--nats", free, "--s3", free,
	}, b.Args...)
	c, err := StartChild(ctx, data, env, b.Program, args...)
	if err != nil {
		return nil, err
	}
	u := &upChild{Child: c}
	if err := json.NewDecoder(c.Stdout).Decode(u); err != nil {
		return nil, errors.Join(fmt.Errorf("start codefleet up: %w", err), c.Stop())
	}
	return u, nil
}

// beside returns the path of another of the fleet's binaries, in codefleet's directory.
func (b *Bench) beside(name string) (string, bool) {
	path, err := exec.LookPath(filepath.Join(filepath.Dir(b.Program), name))
	return path, err == nil
}

// processTree returns the ids of a process and all of its descendants.
func processTree(root int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		var pid, parent int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // the process has ended
		}
		after := stat[bytes.LastIndexByte(stat, ')')+1:] // the name in parentheses may contain any character
		var state string
		if _, err := fmt.Sscan(string(after), &state, &parent); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	found := []int{root}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found, nil
}
