package gvisor_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// TestMain also lets a test start this binary as a worker with boxes, which the test kills, and as the parent of a
// process in a namespace.
func TestMain(m *testing.M) {
	if args := os.Getenv(startInside); args != "" {
		if err := startInNamespace(strings.Split(args, "\n")); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv("TEST_OWN_BOXES_IN"); dir != "" {
		if err := ownBoxes(dir); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ownBoxes runs a pool with a bound box, a busy box and ready boxes. If this process is root, all boxes but the
// first are restored. It prints "ready" and continues until it is killed.
func ownBoxes(dir string) error {
	d, err := gvisor.New(gvisor.Options{Runsc: os.Getenv("CODEFLEET_RUNSC"), Dir: filepath.Join(dir, "gv")})
	if err != nil {
		return err
	}
	p, err := executor.NewPool(d, executor.PoolOptions{MinReady: 2, Max: 4, Dir: filepath.Join(dir,
		"pool"), Owner: "victim", DiskMB: 32, Environments: []executor.Environment{{
		Prepare: func(context.Context) (executor.Root, error) {
			return executor.Root{Preload: []string{"decimal"}}, nil
		},
	}}})
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- p.Run(context.Background()) }()
	for _, code := range []string{"print(1)", "while True: pass"} {
		box, err := p.Acquire(context.Background(), executor.Key{Tenant: code}, executor.Limits{}, nil)
		if err != nil {
			return err
		}
		if code == "print(1)" {
			if _, err := box.Run(context.Background(), executor.Program{TaskID: "t", Code: code},
				executor.Hooks{}); err != nil {
				return err
			}
			box.Release()
			continue
		}
		go func() {
			_, err := box.Run(context.Background(),
				executor.Program{TaskID: "t", Code: "print('busy', flush=True)\n" + code}, executor.Hooks{
					Output: func(string, []byte) { fmt.Println("ready") },
				})
			failed <- err
		}()
	}
	return <-failed
}

func TestSweepAfterAKilledWorker(t *testing.T) {
	dir := shortDir(t)
	runsc := engine(t)
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), "TEST_OWN_BOXES_IN="+dir, "CODEFLEET_RUNSC="+runsc)
	stdout, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = worker.Process.Kill() // fails if it has ended
		_ = worker.Wait()
	})
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("worker printed %q, want ready", lines.Text())
	}
	if n := len(processesBelow(t, dir)); n < 6 {
		t.Fatalf("%d processes of boxes before the kill, want at least 6", n)
	}
	if err := worker.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = worker.Wait() // killed
	before, err := hostdir.Mounts(dir)
	if err != nil || len(before) == 0 && os.Geteuid() == 0 {
		t.Fatalf("mounts that the killed worker left = %v, %v, want at least one", before, err)
	}

	d, err := gvisor.New(gvisor.Options{Runsc: runsc, Dir: filepath.Join(dir, "gv")})
	if err != nil {
		t.Fatal(err)
	}
	probe := filepath.Join(dir, "gv", ".probe-1-dead", "b", "p") // as left by a worker that was killed during a probe
	if err := os.MkdirAll(probe, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	p, err := executor.NewPool(d, executor.PoolOptions{MinReady: 1, Max: 2, Dir: filepath.Join(dir,
		"pool"), Owner: "victim", DiskMB: 32})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	select {
	case <-p.Ready():
	case err := <-done:
		t.Fatalf("Run after the crash = %v; want it to continue", err)
	}
	box := acquire(t, p, "next", executor.Limits{})
	if v := run(t, box, "import os; print(sorted(os.listdir('/workspace')))"); v.Output != views {
		t.Errorf("first program of the next worker = %+v, want an empty workspace", v)
	}
	box.Release()
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	checkNothingLeft(t, dir)
}

// checkNothingLeft checks that no processes, mounts, loop devices, cgroups or files are left.
func checkNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if left := processesBelow(t, dir); len(left) > 0 {
		t.Errorf("processes left: %q, want none", left)
	}
	if mounts, err := hostdir.Mounts(dir); err != nil || len(mounts) > 0 {
		t.Errorf("mounts left: %q, %v, want none", mounts, err)
	}
	if loops := loopsBelow(t, dir); len(loops) > 0 {
		t.Errorf("loop devices left: %+v, want none", loops)
	}
	for _, sub := range []string{"gv", "pool"} {
		if left, err := os.ReadDir(filepath.Join(dir, sub)); err != nil || len(left) > 0 {
			t.Errorf("files left in %s: %v, %v, want none", sub, left, err)
		}
	}
	if groups := gvisor.Groups(filepath.Join(dir, "gv", "victim")); len(groups) > 0 {
		t.Errorf("cgroups left: %q, want none", groups)
	}
}

// processesBelow returns the command lines of the processes whose boxes are below dir.
func processesBelow(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		if args, err := os.ReadFile(file); err == nil && strings.Contains(string(args), "--root="+dir+"/") {
			found = append(found, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}

// loopsBelow returns the loop devices whose files are below dir.
func loopsBelow(t testing.TB, dir string) []hostdir.Disk {
	t.Helper()
	disks, err := hostdir.Disks()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(disks, func(d hostdir.Disk) bool { return !hostdir.Below(d.Image, dir) })
}

// TestRootless runs tests of this binary as an ordinary user.
func TestRootless(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this process is not root, so all tests are rootless")
	}
	dir := shortDir(t)
	for _, path := range []string{os.Args[0], engine(t)} {
		copyFile(t, path, filepath.Join(dir, filepath.Base(path)))
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, filepath.Base(os.Args[0])), "-test.v",
		"-test.run=^(TestProbe|TestPool.*|TestExitCodes|TestScratchIsBounded|"+
			"TestSweepAfterAKilledWorker|TestDestroyAtAnyTime|TestWorkspaceLimit)$")
	cmd.Dir = home
	cmd.Env = []string{
		"PATH=/usr/bin:/bin", "TMPDIR=" + home, "CODEFLEET_REQUIRE_GVISOR=1",
		"CODEFLEET_RUNSC=" + filepath.Join(dir, "runsc"),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("tests as an ordinary user = %v, want nil\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestProbe") {
		t.Errorf("tests as an ordinary user did not run:\n%s", out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestSandboxKilledFromOutside checks that if a sandbox is killed from the host, Run returns ErrSandboxDied, so that
// the fleet runs the program again.
func TestSandboxKilledFromOutside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without root, the program can kill the sandbox, so Run returns a verdict instead")
	}
	dir := shortDir(t)
	d, err := gvisor.New(gvisor.Options{Runsc: engine(t), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s, err := executor.NewSingle(t.Context(), d, executor.Spec{Name: "w0", Owner: "test", Workspace: workspace(t)})
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Run(t.Context(), executor.Program{TaskID: "t", Code: "print('on', flush=True)\nwhile True: pass"},
		executor.Hooks{
			Output: func(string, []byte) { killBelow(t, dir) },
		})
	if !errors.Is(err, executor.ErrSandboxDied) {
		t.Errorf("Run = %+v, %v, want %v", v, err, executor.ErrSandboxDied)
	}
	if err := errors.Join(s.Close(t.Context()), d.Close()); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	if left := processesBelow(t, dir); len(left) > 0 {
		t.Errorf("processes left: %q, want none", left)
	}
}

// killBelow kills the processes of the boxes in dir.
func killBelow(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	killed := 0
	for _, file := range files {
		args, err := os.ReadFile(file)
		pid, isPid := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && isPid == nil && strings.Contains(string(args), "--root="+dir+"/") &&
			syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		t.Error("found no process of a box, want one to kill")
	}
}
