package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// containerID is the same for all boxes, because each has its own state directory.
const containerID = "b"

// destroyTimeout bounds how long killed processes may take to end.
const destroyTimeout = 20 * time.Second

// destroyGrace is how long the engine may take to clean up after its sandbox was killed.
const destroyGrace = time.Second

// searchInterval is the time between two searches for the sandbox process, which may not have started yet.
const searchInterval = 50 * time.Millisecond

// box is one gVisor container. It implements executor.Box, Limiter, MemoryMeter, OOMReporter and GuestReporter.
type box struct {
	driver *Driver
	owner  *owner
	spec   executor.Spec
	dir    string // bundle and runsc's state; all the box's processes have it in their arguments
	root   string // directory of the root file system
	python string // path of the interpreter in root
	group  group

	mu        sync.Mutex
	main      *session // the sandbox's first process
	sessions  []*session
	limits    []setting // what Limit has last set; nil if unknown
	oom       bool
	destroyed bool
}

// prepare makes the box's cgroup and sets its limits.
func (b *box) prepare(groups cgroups) error {
	if !groups.enabled() {
		return nil
	}
	group, err := groups.create(b.owner.dir, b.spec.Name)
	if err != nil {
		return err
	}
	b.group = group
	return group.apply(settings(group.v2, boxMemoryMB(b.spec.MemoryMB), b.spec.CPUs))
}

// boxMemoryMB returns the memory limit of a box whose programs may use mb. 0 means no limit.
func boxMemoryMB(mb int) int {
	if mb <= 0 {
		return 0
	}
	return mb + boxOverheadMB
}

// Exec boots the sandbox with argv as its first process, or starts argv in the running sandbox.
func (b *box) Exec(ctx context.Context, argv []string) (executor.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.addSession(ctx, func() (*session, error) { return b.start(argv) })
	if err != nil {
		return nil, fmt.Errorf("start in gvisor box %s: %w", b.spec.Name, err)
	}
	return s, nil
}

// addSession calls start unless the box is destroyed, and records the session; b.mu is held.
func (b *box) addSession(ctx context.Context, start func() (*session, error)) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.destroyed {
		return nil, fmt.Errorf("the box is destroyed: %w", os.ErrClosed)
	}
	s, err := start()
	if err == nil {
		b.sessions = append(b.sessions, s)
	}
	return s, err
}

func (b *box) start(argv []string) (*session, error) {
	if len(argv) == 0 {
		return nil, errors.New("empty command")
	}
	config := b.config(argv)
	if b.main != nil && !b.main.ended() {
		return b.enter(config.Process)
	}
	return b.boot(config, "run")
}

// config returns the OCI configuration of the box with argv as its first process.
func (b *box) config(argv []string) *specs.Spec {
	return boxConfig{
		spec: b.spec, root: b.root, mounts: b.driver.hostMounts(b.spec), rootless: b.driver.rootless, args: argv,
	}.config()
}

// boot starts the sandbox with a runsc command.
func (b *box) boot(config *specs.Spec, command ...string) (*session, error) {
	if err := writeJSON(filepath.Join(b.dir, "config.json"), config); err != nil {
		return nil, err
	}
	s, err := launch(b.runsc(append(command, "--bundle="+b.dir, containerID)...), b.group)
	if err == nil {
		b.main = s
	}
	return s, err
}

// enter starts another process in the running sandbox.
func (b *box) enter(process *specs.Process) (*session, error) {
	file := filepath.Join(b.dir, "exec"+strconv.Itoa(len(b.sessions))+".json")
	if err := writeJSON(file, process); err != nil {
		return nil, err
	}
	return launch(b.runsc("exec", "--process="+file, containerID), b.group)
}

// runsc returns a command of the engine. The engine's state is in the box's directory. The gofers, which serve
// files to the sandboxes, share an empty network namespace with those of all boxes of their owner
// (executor.Spec.Owner).
func (b *box) runsc(args ...string) *exec.Cmd {
	flags := []string{
		"--root=" + b.dir, "--shared-root=" + filepath.Join(b.owner.dir, sharedDir),
		"--platform=systrap", "--network=none", "--overlay2=none", "--ignore-cgroups",
		"--host-uds=none", "--host-fifo=none", "--file-access-mounts=shared", "--host-settings=ignore",
	}
	if b.driver.rootless {
		flags = append(flags, "--rootless")
	}
	//nolint:noctx // boxes outlive calls; Destroy ends them
	cmd := exec.Command(b.driver.opts.Runsc, append(flags, args...)...)
	cmd.Dir = b.dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd
}

// Limit sets the limits of the box's control group for the next program. Without cgroups it does nothing.
func (b *box) Limit(_ context.Context, limits executor.Limits) error {
	if len(b.group.dirs) == 0 {
		return nil
	}
	limits = limits.OrDefaults()
	wanted := settings(b.group.v2, boxMemoryMB(limits.MemoryMB), limits.CPUs)
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Equal(wanted, b.limits) {
		return nil
	}
	b.limits = nil
	if err := b.group.apply(wanted); err != nil {
		return err
	}
	b.limits = wanted
	return nil
}

// Stats returns the resource use of all processes of the box, including the engine's.
func (b *box) Stats(context.Context) (executor.Stats, error) {
	if len(b.group.dirs) > 0 {
		return b.group.stats(), nil
	}
	return processStats(b.dir)
}

// UsesMoreThan reports whether the box uses more than mb MB. It may do so even after its program has ended, because the
// engine keeps memory that programs made it allocate, such as that of their pipes.
func (b *box) UsesMoreThan(mb float64) bool { return b.group.usesMoreThan(mb) }

// OutOfMemory reports whether the host's kernel killed a process of the box because of the box's memory limit.
func (b *box) OutOfMemory() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.oom = b.oom || b.group.outOfMemory()
	return b.oom
}

// Guest describes the box. If the driver is rootless, the box has only one user.
func (b *box) Guest() executor.Guest {
	guest := executor.DefaultGuest()
	guest.Python, guest.CountsThreads, guest.HiddenSockets = b.python, true, true
	if b.driver.rootless {
		guest.SeparateUser, guest.UID = false, 0
	}
	return guest
}

// Destroy kills the box's processes, waits for them to end, and removes its directory and cgroup. It may be
// called again, even after an error.
func (b *box) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	b.mu.Lock()
	b.destroyed = true
	sessions := slices.Clone(b.sessions)
	b.mu.Unlock()
	if err := b.destroy(ctx, sessions); err != nil {
		return fmt.Errorf("destroy gvisor box %s: %w", b.spec.Name, err)
	}
	b.driver.freeName(b.spec)
	return nil
}

// destroy kills the sandbox process first. Its parents, runsc's other processes, then end by themselves and
// leave no zombies. Processes that do not end are killed as well. Last, destroy removes the box's cgroup and directory.
func (b *box) destroy(ctx context.Context, sessions []*session) error {
	for tries := 0; !allEnded(sessions) && tries < int(destroyGrace/searchInterval); tries++ {
		if err := killSandbox(b.dir); err != nil {
			return err
		}
		waitEnded(sessions, searchInterval)
	}
	for _, s := range sessions {
		_ = s.process.Kill() // fails if it has ended
	}
	if err := killAll(ctx, b.dir); err != nil {
		return err
	}
	for _, s := range sessions {
		<-s.done
	}
	b.OutOfMemory()                                    // remembers the answer, which needs the cgroup
	if err := retry(ctx, b.group.remove); err != nil { // the group stays busy for a moment
		return err
	}
	return hostdir.Remove(b.dir)
}

func allEnded(sessions []*session) bool {
	return !slices.ContainsFunc(sessions, func(s *session) bool { return !s.ended() })
}

// waitEnded waits until all sessions have ended, for at most limit.
func waitEnded(sessions []*session, limit time.Duration) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for _, s := range sessions {
		select {
		case <-s.done:
		case <-timeout.C:
			return
		}
	}
}

// retry calls f until it succeeds or ctx ends, and returns its last error.
func retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || clock.Sleep(ctx, time.Millisecond) != nil {
			return err
		}
	}
}

func writeJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return os.WriteFile(path, data, 0o600)
}

// session is one runsc process. Its standard streams belong to a process in the box.
type session struct {
	process        *os.Process
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser
	done           chan struct{} // closed after the process has ended; guards state and err
	state          *os.ProcessState
	err            error
}

// newSession starts cmd with pipes as its standard streams. runsc must not get regular files: it keeps its own
// offset in them and overwrites what others have written.
func newSession(cmd *exec.Cmd, start func(*exec.Cmd) error) (*session, error) {
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	stderr, err3 := cmd.StderrPipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	s := &session{stdin: stdin, stdout: stdout, stderr: stderr, done: make(chan struct{})}
	if err := start(cmd); err != nil {
		s.closeStreams()
		return nil, err
	}
	s.process = cmd.Process
	go s.reap() // ends with the process; Destroy waits for it
	return s, nil
}

func (s *session) closeStreams() {
	s.stdin.Close()
	s.stdout.Close()
	s.stderr.Close()
}

func (s *session) reap() {
	s.state, s.err = s.process.Wait()
	close(s.done)
}

func (s *session) Stdin() io.WriteCloser { return s.stdin }
func (s *session) Stdout() io.Reader     { return s.stdout }
func (s *session) Stderr() io.Reader     { return s.stderr }

// Wait waits for the process and closes the streams.
func (s *session) Wait() (int, error) {
	<-s.done
	s.closeStreams()
	if s.err != nil {
		return 0, fmt.Errorf("wait for a process in a gvisor box: %w", s.err)
	}
	return exitCode(s.state), nil
}

func (s *session) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
