package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/codefleet/codefleet/internal/embedded"
)

// servers are the programs of the other queues' servers.
type servers struct {
	postgres string // directory of initdb and postgres
	redis    string // redis-server
}

// missing returns why a system cannot be measured, or "".
func (s servers) missing(system string) string {
	program := map[string]string{"River": filepath.Join(s.postgres, "postgres"), "Asynq": s.redis}[system]
	if program == "" {
		return ""
	}
	if _, err := exec.LookPath(program); err != nil {
		return err.Error()
	}
	return ""
}

// A process is a server in a process of its own, as it runs in production.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	stop  syscall.Signal
}

// close asks the server to end, and waits for it.
func (p *process) close() error {
	err := p.stdin.Close()
	if p.stop != 0 {
		err = errors.Join(err, p.cmd.Process.Signal(p.stop))
	}
	var exit *exec.ExitError
	if waitErr := p.cmd.Wait(); !errors.As(waitErr, &exit) { // how it exits after the signal does not matter
		err = errors.Join(err, waitErr)
	}
	return err
}

// startProcess starts a server that lives no longer than this process.
func startProcess(cmd *exec.Cmd, stop syscall.Signal) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	return &process{cmd, stdin, stop}, nil
}

// freePort returns a port on which nothing listens on 127.0.0.1.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// awaitServer repeats connect until a server that was just started responds.
func awaitServer[T any](ctx context.Context, connect func() (T, error)) (T, error) {
	return backoff.Retry(ctx, connect, backoff.WithBackOff(backoff.NewConstantBackOff(50*time.Millisecond)),
		backoff.WithMaxElapsedTime(30*time.Second))
}

// natsAddress is what a NATS server's process prints.
type natsAddress struct{ URL, User, Password string }

// startNATS starts a NATS server in a process of its own: the fleet's, or one without users and accounts. Both sync
// each acknowledged write.
func startNATS(ctx context.Context, kind, dir string) (*process, natsAddress, error) {
	var address natsAddress
	program, err := os.Executable()
	if err != nil {
		return nil, address, err
	}
	cmd := exec.CommandContext(ctx, program, "nats", kind, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, address, err
	}
	p, err := startProcess(cmd, 0)
	if err != nil {
		return nil, address, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &address)
	}
	if err != nil {
		return nil, address, errors.Join(fmt.Errorf("read the address of the NATS server: %w", err), p.close())
	}
	return p, address, nil
}

// natsMain runs a NATS server, if the arguments ask for one, until standard input ends.
func natsMain() {
	if len(os.Args) != 4 || os.Args[1] != "nats" {
		return
	}
	start := map[string]func(string) (natsAddress, func(), error){"fleet": fleetNATS, "bare": bareNATS}[os.Args[2]]
	address, stop, err := start(os.Args[3])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(address)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start NATS:", err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	os.Exit(0)
}

func fleetNATS(dir string) (natsAddress, func(), error) {
	s, err := embedded.StartNATS(context.Background(), embedded.NATSOptions{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return natsAddress{}, nil, err
	}
	return natsAddress{s.URL(), s.Fleet().User, s.Fleet().Password}, s.Close, nil
}

func bareNATS(dir string) (natsAddress, func(), error) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, SyncAlways: true,
		NoLog: true, NoSigs: true,
	})
	if err != nil {
		return natsAddress{}, nil, err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return natsAddress{}, nil, errors.New("not ready after 10 seconds")
	}
	return natsAddress{URL: s.ClientURL()}, func() { s.Shutdown(); s.WaitForShutdown() }, nil
}

// startPostgres starts a new Postgres with its default durability: a commit is on disk (fsync, synchronous_commit).
// Postgres refuses to run as root: if this process does, Postgres runs as the user nobody.
func (s servers) startPostgres(dir string) (_ *process, url string, err error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, "", err
	}
	var user *syscall.SysProcAttr
	if os.Getuid() == 0 {
		const nobody = 65534
		user = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		// The parent directory belongs to this process, and Postgres must pass through it.
		if err := errors.Join(os.Chown(dir, nobody, nobody), os.Chmod(filepath.Dir(dir), 0o711)); err != nil {
			return nil, "", err
		}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(s.postgres, "initdb"), "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8")
	initdb.SysProcAttr, initdb.Dir = user, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	cmd := exec.Command(filepath.Join(s.postgres, "postgres"), "-D", data, "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+dir)
	cmd.SysProcAttr, cmd.Dir = user, dir
	p, err := startProcess(cmd, syscall.SIGINT)
	return p, fmt.Sprintf("postgres://bench@127.0.0.1:%d/postgres", port), err
}

// startRedis starts a new Redis that syncs its log before it acknowledges a write.
func (s servers) startRedis(dir string) (_ *process, addr string, err error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, "", err
	}
	cmd := exec.Command(s.redis, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "")
	p, err := startProcess(cmd, syscall.SIGTERM)
	return p, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
