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

// child is a program of the fleet as a process of its own. It is in a process group of its own too:
// a Ctrl-C at the terminal reaches it through its context only, and as one signal; at a second one
// it would leave its sandboxes behind.
type child struct {
	cmd    *exec.Cmd
	stdout io.Reader
	stderr bytes.Buffer
	end    context.CancelFunc
}

// stopTime is what a program may take to end after a signal before it is killed.
const stopTime = 40 * time.Second

// startChild starts a program with its state in a directory of its own. It ends with ctx, or by stop.
func startChild(ctx context.Context, data, path string, args ...string) (*child, error) {
	ctx, end := context.WithCancel(ctx)
	c := &child{cmd: exec.CommandContext(ctx, path, args...), end: end}
	c.cmd.Env = append(c.cmd.Environ(), "CODEFLEET_DATA="+data, "LOG_LEVEL=ERROR")
	c.cmd.Stderr = &c.stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = stopTime
	var err error
	if c.stdout, err = c.cmd.StdoutPipe(); err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		end()
		return nil, err
	}
	return c, nil
}

// stop ends the program and waits until it has ended. It is called once.
func (c *child) stop() error {
	c.end()
	err := c.cmd.Wait()
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("%s: %w: %s", filepath.Base(c.cmd.Path), err, bytes.TrimSpace(c.stderr.Bytes()))
}

// upChild is `codefleet up`.
type upChild struct {
	*child
	Fleet string `json:"fleet"` // path of its fleet.json
}

// startUp starts `codefleet up` on free ports and returns when it is ready.
func (b *bench) startUp(ctx context.Context, data string) (*upChild, error) {
	const free = "127.0.0.1:0"
	args := append([]string{"up", "-o", "json", "--data", data, "--http", free, "--nats", free, "--s3", free}, b.Args...)
	c, err := startChild(ctx, data, b.Program, args...)
	if err != nil {
		return nil, err
	}
	u := &upChild{child: c}
	if err := json.NewDecoder(c.stdout).Decode(u); err != nil {
		return nil, errors.Join(fmt.Errorf("start codefleet up: %w", err), c.stop())
	}
	return u, nil
}

// beside is the path of another program of the fleet, in the directory of codefleet.
func (b *bench) beside(name string) (string, bool) {
	path, err := exec.LookPath(filepath.Join(filepath.Dir(b.Program), name))
	return path, err == nil
}

// tree is a process and all that descend from it.
func tree(root int) ([]int, error) {
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
			continue // it has ended
		}
		after := stat[bytes.LastIndexByte(stat, ')')+1:] // the name may hold anything
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
