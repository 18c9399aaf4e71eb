package microsandbox_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/executor/microsandbox"
)

// TestMain makes the test binary a fake msb if it is started under that name. A fake sandbox is a process that
// speaks the agent's protocol and runs processes on this host. The fake refuses what the real msb refuses, and
// knows the part of the command line that the driver uses.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "msb" {
		syscall.Exit(fakeMsb(os.Args[1:])) // os.Exit waits a second under the race detector
	}
	os.Exit(m.Run())
}

// fake returns a driver with the fake msb.
func fake(tb testing.TB, change ...func(*microsandbox.Options)) *microsandbox.Driver {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	bin, dir := shortDir(tb), shortDir(tb)
	if err := os.Symlink(self, filepath.Join(bin, "msb")); err != nil {
		tb.Fatal(err)
	}
	opts := microsandbox.Options{Msb: filepath.Join(bin, "msb"), Dir: dir, Image: "python:fake"}
	for _, c := range change {
		c(&opts)
	}
	return newDriver(tb, opts)
}

func newDriver(tb testing.TB, opts microsandbox.Options) *microsandbox.Driver {
	tb.Helper()
	d, err := microsandbox.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Errorf("Close = %v, want nil", err)
		}
	})
	return d
}

func shortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "m") //nolint:usetesting // sockets need a short path
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// fakeBoxDir returns the directory in which the fake msb keeps a sandbox's label and process id.
func fakeBoxDir(home, name string) string { return filepath.Join(home, "fake", name) }

func fakeSocket(home, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(home, "run", "sandboxes", hex.EncodeToString(sum[:12]), "agent.sock")
}

func fakeMsb(args []string) int {
	home := os.Getenv("MSB_HOME")
	flags, rest := map[string][]string{}, []string{}
	for i := 1; i < len(args); i++ {
		switch {
		case slices.Contains([]string{"--quiet", "--no-net", "--force"}, args[i]):
		case strings.HasPrefix(args[i], "--") && i+1 < len(args):
			flags[args[i]] = append(flags[args[i]], args[i+1])
			i++
		default:
			rest = append(rest, args[i])
		}
	}
	var err error
	switch args[0] {
	case "remove", "list":
		err = fakeFailure(home)
	}
	if _, missing := os.Stat(filepath.Join(home, "unremovable")); args[0] == "remove" && missing == nil {
		err = errors.New("the agent does not respond")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	switch args[0] {
	case "--version":
		fmt.Println("msb " + microsandbox.Version)
	case "create":
		err = fakeCreate(home, flags, rest)
	case "machine":
		err = fakeSandbox(home, flags["--name"][0])
	case "remove":
		err = fakeRemove(home, rest[0])
	case "list":
		entries, _ := os.ReadDir(filepath.Join(home, "fake"))
		for _, e := range entries {
			label, _ := os.ReadFile(filepath.Join(fakeBoxDir(home, e.Name()), "label"))
			if want := flags["--label"]; len(want) == 0 || want[0] == string(label) {
				fmt.Println(e.Name())
			}
		}
	case "image":
		fmt.Print(`[{"reference":"docker.io/library/python:fake","size_bytes":117800960},` +
			`{"reference":"docker.io/library/python:large","size_bytes":10737418240},` +
			`{"reference":"docker.io/library/large:latest","size_bytes":10737418240}]`)
	case "metrics":
		metrics := map[string]any{"vcpu_time_ns": 2e6, "memory_host_resident_bytes": 3 << 20}
		err = json.NewEncoder(os.Stdout).Encode(metrics)
	case "pull":
		err = errors.New("image error: not found: " + rest[0])
	case "load":
		if _, err = os.Stat(flags["--input"][0]); err == nil {
			err = os.WriteFile(filepath.Join(home, "loaded"), []byte(flags["--input"][0]), 0o600)
		}
	case "doctor":
	default:
		err = fmt.Errorf("unknown command %q", args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

// fakeFailure returns an error while the file broken exists.
func fakeFailure(home string) error {
	if _, err := os.Stat(filepath.Join(home, "broken")); err == nil {
		return errors.New("database is locked")
	}
	return nil
}

// fakeCreate starts the process of a sandbox, which outlives this one. After a failed start, msb still lists the
// sandbox.
func fakeCreate(home string, flags map[string][]string, rest []string) error {
	name := flags["--name"][0]
	dir := fakeBoxDir(home, name)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("sandbox already exists: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "label"), []byte(flags["--label"][0]), 0o600); err != nil {
		return err
	}
	if len(rest) != 1 || strings.Contains(name, "fails") {
		return errors.New("boot failed")
	}
	if err := fakeFailure(home); err != nil {
		return err
	}
	socket := fakeSocket(home, name)
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return err
	}
	cmd := exec.Command(os.Args[0], "machine", "--name", name)
	cmd.Args[0] = "msb"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "pid"), fmt.Append(nil, cmd.Process.Pid), 0o600); err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if conn, err := net.Dial("unix", socket); err == nil {
			return conn.Close()
		}
	}
	return nil
}

func fakeRemove(home, name string) error {
	dir := fakeBoxDir(home, name)
	if _, err := os.Stat(dir); err != nil {
		return errors.New("sandbox not found: " + name)
	}
	if pid := fakePID(home, name); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGTERM)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if fakeEnded(pid) {
				break
			}
		}
	}
	return errors.Join(os.RemoveAll(filepath.Dir(fakeSocket(home, name))), os.RemoveAll(dir))
}

// fakeEnded reports whether a process has ended.
func fakeEnded(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func fakePID(home, name string) int {
	var pid int
	text, _ := os.ReadFile(filepath.Join(fakeBoxDir(home, name), "pid"))
	_, _ = fmt.Sscan(string(text), &pid)
	return pid
}

// fakeSandbox serves as the agent of a sandbox until SIGTERM.
func fakeSandbox(home, name string) error {
	l, err := net.Listen("unix", fakeSocket(home, name))
	if err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		<-ended
		os.Exit(0)
	}()
	for first := true; ; first = false {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		if strings.Contains(name, "vanishes") && !first { // the first connection is fakeCreate's
			return errors.New("the machine crashed")
		}
		go fakeAgent(conn)
	}
}

// fakeAgent serves one connection.
func fakeAgent(conn net.Conn) {
	defer conn.Close()
	var writing sync.Mutex
	send := func(id uint32, kind string, payload any) {
		writing.Lock()
		defer writing.Unlock()
		frame, _ := microsandbox.EncodeFrame(id, 0, kind, payload)
		_, _ = conn.Write(frame)
	}
	_, _ = conn.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 100), 200))
	send(0, "core.ready", map[string]string{"agent": "0.0.0"})
	processes := map[uint32]*fakeProcess{}
	defer func() {
		for _, p := range processes {
			_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		}
	}()
	in := bufio.NewReader(conn)
	for {
		id, kind, message, err := microsandbox.ReadFrame(in)
		if err != nil {
			return
		}
		switch kind {
		case "core.exec.request":
			p, err := fakeStart(id, message, send)
			if err != nil {
				send(id, "core.exec.failed", microsandbox.StartError{Kind: "not_found", Message: err.Error()})
				continue
			}
			processes[id] = p
		case "core.exec.stdin":
			var input microsandbox.StreamData
			_ = message.Decode(&input)
			if p := processes[id]; p != nil && len(input.Data) == 0 {
				p.stdin.Close()
			} else if p != nil {
				_, _ = p.stdin.Write(input.Data)
			}
		}
	}
}

// fakePython stands for an image's interpreter that runs one of the driver's scripts. prepareBox fails unless its
// argument is "search" or the list that it printed in the image's first box.
func fakePython(args []string) *exec.Cmd {
	last := args[len(args)-1]
	if strings.Contains(last, "libc_ver") {
		const platform = `{"version": "3.12.1", "machine": "x86_64", "library": "glibc", "library_version": "2.28"}`
		return exec.Command("/bin/echo", platform)
	}
	if last != "search" && last != `["/var/tmp"]` {
		return exec.Command("/bin/false")
	}
	return exec.Command("/bin/echo", `{"python": [3, 12, 1], "protected": ["/var/tmp"]}`)
}

type fakeProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func fakeStart(id uint32, m microsandbox.Message, send func(uint32, string, any)) (*fakeProcess, error) {
	var request microsandbox.ExecRequest
	if err := m.Decode(&request); err != nil {
		return nil, err
	}
	cmd := exec.Command(request.Cmd, request.Args...)
	if filepath.Base(request.Cmd) == "python3" { // the driver's scripts must not change this host
		cmd = fakePython(request.Args)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	stderr, err3 := cmd.StderrPipe()
	if err := errors.Join(err1, err2, err3, cmd.Start()); err != nil {
		return nil, err
	}
	send(id, "core.exec.started", map[string]int{"pid": cmd.Process.Pid})
	var streams sync.WaitGroup
	for kind, from := range map[string]io.Reader{"core.exec.stdout": stdout, "core.exec.stderr": stderr} {
		streams.Go(func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := from.Read(buf)
				if n > 0 {
					send(id, kind, microsandbox.StreamData{Data: buf[:n]})
				}
				if err != nil {
					return
				}
			}
		})
	}
	go func() {
		streams.Wait()
		_ = cmd.Wait()
		code := int64(cmd.ProcessState.ExitCode())
		send(id, "core.exec.exited", microsandbox.Exited{Code: &code})
	}()
	return &fakeProcess{cmd: cmd, stdin: stdin}, nil
}
