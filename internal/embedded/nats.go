// Package embedded runs the servers that a fleet needs, for `codefleet up` and for tests: NATS in this process, and an
// S3 server in a child process. A larger installation runs the same servers separately, with the same settings.
package embedded

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

// NATSOptions configure StartNATS. Dir is required.
type NATSOptions struct {
	Dir  string // directory of the streams, created if necessary, private to this user
	Addr string // host:port to listen on, default 127.0.0.1:0; "-" for in-process connections only

	Fleet   NATSUser            // for workers and ingest; generated if empty
	Tenants map[string]NATSUser // by tenant; see NATSAccounts

	MaxStoreBytes int64 // limit of all streams together; 0 means storeLimit
	Log           *slog.Logger
}

// NATSUser is a name and a password.
type NATSUser struct{ User, Password string }

// NATS is a server that is stopped while its disk is full: see guardDisk. It is safe for concurrent use.
type NATS struct {
	opts       NATSOptions // Addr is the listener's address, with the port that it got
	stop       context.CancelFunc
	background sync.WaitGroup // ends after stop

	mu  sync.Mutex
	srv *server.Server // nil while it is stopped
	log *natsLog       // of srv
}

// FleetUser is the default name of the user of workers and ingest.
const FleetUser = "fleet"

const maxPayload = 1<<20 + 64<<10 // bytes of a message: 1 MiB of task data, and headers

// maxConsumers is the maximum number of consumers of a stream. Each client that watches a task has one.
const maxConsumers = 100_000

// StartNATS starts a JetStream server and returns when it is ready. Acknowledged writes are on disk (sync always), and
// every connection needs a password. If the address is in use, the error wraps syscall.EADDRINUSE.
func StartNATS(ctx context.Context, opts NATSOptions) (*NATS, error) {
	opts.Log = cmp.Or(opts.Log, slog.Default())
	opts.Fleet.User = cmp.Or(opts.Fleet.User, FleetUser)
	opts.Fleet.Password = cmp.Or(opts.Fleet.Password, rand.Text())
	if err := makePrivateDir(opts.Dir); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	guarded, stop := context.WithCancel(context.WithoutCancel(ctx))
	n := &NATS{opts: opts, stop: stop}
	if err := n.start(ctx); err != nil {
		stop()
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	if addr := n.srv.Addr(); addr != nil {
		n.opts.Addr = addr.String()
	}
	n.background.Go(func() { n.guardDisk(guarded) })
	return n, nil
}

// start starts the server and returns when it is ready.
func (n *NATS) start(ctx context.Context) error {
	conf, err := serverOptions(ctx, n.opts)
	if err != nil {
		return err
	}
	srv, err := server.NewServer(conf)
	if err != nil {
		return err
	}
	log := &natsLog{log: n.opts.Log}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	if err := ready(ctx, srv, log); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("in %s: %w", n.opts.Dir, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.srv, n.log = srv, log
	return nil
}

// shutdown stops the server, if it runs.
func (n *NATS) shutdown() {
	n.mu.Lock()
	srv := n.srv
	n.srv = nil
	n.mu.Unlock()
	if srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}

// server returns nil while the server is stopped.
func (n *NATS) server() (*server.Server, *natsLog) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.srv, n.log
}

func serverOptions(ctx context.Context, opts NATSOptions) (*server.Options, error) {
	accounts, err := NATSAccounts(opts.Fleet, opts.Tenants)
	if err != nil {
		return nil, err
	}
	conf := &server.Options{}
	if err := conf.ProcessConfigString(accounts); err != nil {
		return nil, err
	}
	conf.ServerName = "codefleet"
	conf.JetStream, conf.StoreDir, conf.SyncAlways = true, opts.Dir, true
	conf.JetStreamLimits.DefaultMaxConsumers = maxConsumers
	conf.JetStreamMaxStore = opts.MaxStoreBytes
	if conf.JetStreamMaxStore == 0 {
		if conf.JetStreamMaxStore, err = storeLimitIn(opts.Dir); err != nil {
			return nil, err
		}
	}
	conf.MaxPayload = maxPayload
	conf.NoSigs = true
	if opts.Addr == "-" {
		conf.DontListen = true
		return conf, nil
	}
	host, port, err := listenAddr(ctx, opts.Addr)
	if err != nil {
		return nil, err
	}
	conf.Host, conf.Port = host, port
	return conf, nil
}

// minStore is more than the streams of a fleet reserve. With a lower limit, new streams would get less space.
const minStore = 16 << 30

// storeLimit returns how many bytes all streams may have: three quarters of what the disk could give them, so that they
// do not fill it, and at least minStore. The server's own limit is three quarters of what is free when it starts, so
// that after a restart it would refuse messages if the streams had more than that.
func storeLimit(stored, free int64) int64 {
	return max(minStore, (stored+free)/4*3)
}

// storeLimitIn returns the limit of the streams in dir.
func storeLimitIn(dir string) (int64, error) {
	free, _, err := freeBytes(dir)
	if err != nil {
		return 0, err
	}
	var stored int64
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			stored += info.Size()
		}
		return err
	})
	return storeLimit(stored, free), err
}

// freeBytes returns the free bytes of the file system of dir: those available to every user, and those that are
// reserved for root.
func freeBytes(dir string) (available, reserved int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("read the free space of %s: %w", dir, err)
	}
	size := int64(st.Bsize) //nolint:unconvert // the types differ on darwin
	return int64(st.Bavail) * size, int64(st.Bfree-st.Bavail) * size, nil
}

// listenAddr parses addr and tries to listen on it, so that an address in use becomes an error instead of a fatal
// message in the server's log.
func listenAddr(ctx context.Context, addr string) (string, int, error) {
	host, port, err := net.SplitHostPort(cmp.Or(addr, "127.0.0.1:0"))
	if err != nil {
		return "", 0, fmt.Errorf("listen address: %w", err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("listen address %s: port %q is not a number from 0 to 65535", addr, port)
	}
	if n == 0 {
		return host, server.RANDOM_PORT, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "", 0, fmt.Errorf("address %s is in use: stop the process that listens there, or choose another port "+
			"(0 for any free one): %w", addr, err)
	case err != nil:
		return "", 0, err
	}
	return host, int(n), l.Close()
}

// makePrivateDir creates dir, and checks that this process can write into it.
func makePrivateDir(dir string) error {
	if dir == "" {
		return errors.New("the data directory is not set")
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		probe := filepath.Join(dir, ".write-probe")
		if err = os.WriteFile(probe, nil, 0o600); err == nil {
			err = os.Remove(probe)
		}
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("data directory %s is not writable: choose another, or change its owner: %w", dir, err)
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", dir, err)
	}
	return nil
}

// ready waits until JetStream is ready. The server reports start errors only in its log.
func ready(ctx context.Context, srv *server.Server, log *natsLog) error {
	const startLimit = 60 * time.Second // large stores take seconds to recover
	deadline, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for !srv.ReadyForConnections(100 * time.Millisecond) {
		if err := log.fatal(); err != nil {
			return err
		}
		if deadline.Err() != nil {
			return fmt.Errorf("not ready: %w", context.Cause(deadline))
		}
	}
	if !srv.JetStreamEnabled() {
		return errors.Join(errors.New("JetStream did not start"), log.fatal())
	}
	return nil
}

// URL returns nats://host:port, or "" without a listener.
func (n *NATS) URL() string {
	if n.opts.Addr == "-" {
		return ""
	}
	return "nats://" + n.opts.Addr
}

// Fleet returns the user of workers and ingest.
func (n *NATS) Fleet() NATSUser { return n.opts.Fleet }

// InProcessConn connects without a socket. It implements nats.InProcessConnProvider.
func (n *NATS) InProcessConn() (net.Conn, error) {
	srv, _ := n.server()
	if srv == nil {
		return nil, errors.New("the queue's server is stopped")
	}
	return srv.InProcessConn()
}

// Close stops the server and returns when its files are closed. That takes about 11 ms for each consumer, one per
// lane with recent tasks. Killing the process instead loses nothing that was acknowledged.
func (n *NATS) Close() {
	n.stop()
	n.background.Wait()
	n.shutdown()
}
