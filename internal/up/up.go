// Package up runs a whole fleet in one process tree: the embedded queue and object store, the HTTP interface and one
// worker. The parts are the same as in separate processes; Start sets the addresses of the embedded servers in their
// settings. The key type is Fleet.
package up

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/assembly/queue"
	"github.com/codefleet/codefleet/internal/assembly/storage"
	"github.com/codefleet/codefleet/internal/assembly/tooling"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/httpserve"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/toolbox"
)

// Options configure a fleet. Config, Telemetry and Worker are required.
type Options struct {
	Config    *config.Config // Start sets the addresses and credentials of NATS and S3, and the directory of tools
	Telemetry *telemetry.Telemetry
	Version   string
	Worker    Worker
	// Private selects a fleet for the calling process only: it listens on free loopback ports and writes no fleet.json.
	Private bool
	// Step, if not nil, is called with the name of each part before it starts.
	Step func(part string)
}

// Worker runs one worker: it claims tasks until accept ends, then lets running tasks finish until work ends. While
// WorkerOptions.Join waits for the stores, the worker creates its first boxes.
type Worker func(accept, work context.Context, p assembly.WorkerOptions) error

// Fleet is a running fleet.
type Fleet struct {
	File config.FleetFile // addresses and credentials

	o        Options
	listener net.Listener
	nats     *embedded.NATS
	s3       atomic.Pointer[embedded.S3] // replaced when its process exits
	queue    *jobs.Client
	bridge   *bridge.Bridge   // nil if mcp.enabled is false
	tools    *toolbox.Toolbox // used by the HTTP interface
	page     string           // the path that PageLink returns

	unlock func()
	parts  errgroup.Group          // the goroutines of the worker, the HTTP interface and the object store's watcher
	stop   context.CancelCauseFunc // stops the fleet
	opened chan struct{}           // closed when the stores are open, or when the start has failed and stop was called
	done   chan struct{}           // closed when the fleet has ended
	err    error                   // why the fleet ended by itself, or an error of Close; read it after done is closed
}

// errStopped is the cause of a stop by Close.
var errStopped = errors.New("stopped")

// Start starts a fleet in the data directory of its settings. It returns when a submitted task would run at once. ctx
// bounds only the start. If Start returns an error, everything that it started has ended.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	if o.Step == nil {
		o.Step = func(string) {}
	}
	if o.Private {
		c := o.Config
		c.HTTP.Addr, c.NATS.Addr, c.S3.Addr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	}
	if dir := o.Config.Execution.WorkspaceDir; dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, syscall.ENOTDIR) {
			return nil, fmt.Errorf("live folder: %w", err)
		}
		if err := o.Config.CheckLiveFolder(); err != nil {
			return nil, err
		}
	}
	warnings, err := o.Config.CheckFiles()
	if err != nil {
		return nil, err
	}
	for _, w := range append(warnings, o.Config.UnusedByUp()...) {
		o.Telemetry.Logger.WarnContext(ctx, "doubtful setting", "setting", w)
	}
	if n := o.Config.NATS.Replicas; n > 1 {
		const key = "nats.replicas"
		return nil, &config.InvalidError{Problems: []config.Problem{{
			Where: o.Config.Origin(key).Where, Key: key,
			Message: fmt.Sprintf("`codefleet up` has one server, which cannot keep %d replicas", n),
		}}}
	}
	f := &Fleet{o: o, opened: make(chan struct{}), done: make(chan struct{})}
	unlock, err := lockDir(o.Config.Data)
	if err != nil {
		return nil, err
	}
	f.unlock = unlock
	// The fleet's own directory is set, so that the fleet uses no published tools.
	if o.Config.Execution.ServersDir, err = tooling.ServersDir(o.Config); err != nil {
		unlock()
		return nil, err
	}
	if f.listener, err = listen(ctx, o.Config); err != nil {
		unlock()
		return nil, err
	}
	if f.File, err = f.credentials(); err != nil {
		f.listener.Close()
		unlock()
		return nil, err
	}
	life, ready := f.startWorker(ctx)
	if err := f.serve(ctx, life); err != nil {
		f.stop(err)
	}
	close(f.opened)
	f.o.Step("sandboxes")
	select {
	case <-ready:
		return f, f.writeFile()
	case <-f.done:
		return nil, f.err
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), f.Close())
	}
}

// startWorker starts the worker first, because its boxes take longest to start. life ends when the fleet stops; then a
// goroutine waits for all parts and closes the stores. ready is closed when the worker is ready.
func (f *Fleet) startWorker(ctx context.Context) (life context.Context, ready <-chan struct{}) {
	life, f.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	workerReady := make(chan struct{})
	f.part(life, "the worker", func() error {
		return f.o.Worker(life, work, assembly.WorkerOptions{
			Config: f.o.Config, Version: f.o.Version, Telemetry: f.o.Telemetry,
			Join: f.join, Ready: sync.OnceFunc(func() { close(workerReady) }),
		})
	})
	context.AfterFunc(life, func() { time.AfterFunc(f.o.Config.Worker.Drain, cancel) })
	late, stopLate := clock.After(work, 2*jobs.FinishTime) // then no task needs the object store any more
	context.AfterFunc(late, func() {
		if s3 := f.s3.Load(); s3 != nil {
			_ = s3.Stop(stopS3Time)
		}
	})
	go func() {
		defer close(f.done)
		defer cancel()
		<-life.Done()
		<-f.opened
		f.err = f.end(life)
		stopLate()
	}()
	return life, workerReady
}

// part runs a part of the fleet. If the part ends before life does, the fleet stops.
func (f *Fleet) part(life context.Context, name string, run func() error) {
	f.parts.Go(func() error {
		err := run()
		if life.Err() == nil {
			reason := fmt.Errorf("%s ended unexpectedly", name)
			if err != nil {
				reason = fmt.Errorf("%w: %w", reason, err)
			}
			err = reason
			f.stop(err)
		}
		return err
	})
}

// join waits until the stores are open, and returns the queue. The settings then have the object store's address.
func (f *Fleet) join(ctx context.Context) (*jobs.Client, error) {
	select {
	case <-f.opened:
		return f.queue, context.Cause(ctx) // ctx has ended if the stores could not be opened
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// serve starts the stores, connects to the queue, and starts the HTTP interface.
func (f *Fleet) serve(ctx, life context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })()
	if err := f.open(ctx); err != nil {
		return err
	}
	server, err := f.server()
	if err != nil {
		return err
	}
	if f.bridge != nil {
		context.AfterFunc(life, f.bridge.Close)
	}
	f.page = server.PageLink(f.File.Token)
	f.part(life, "the http interface", func() error { return server.Serve(life, f.listener) })
	f.part(life, "the object store", func() error { return f.restartS3(life) })
	return nil
}

// open starts the stores, and connects to the queue.
func (f *Fleet) open(ctx context.Context) (err error) {
	f.o.Step("queue and object store")
	if err := f.startStores(ctx); err != nil {
		return err
	}
	f.setAddresses()
	options, err := queue.Options(f.o.Config, f.o.Telemetry, "codefleet up")
	if err != nil {
		return err
	}
	options.Server.InProcess = f.nats
	if f.queue, err = jobs.Connect(ctx, options); err != nil {
		return fmt.Errorf("connect to the embedded queue: %w", err)
	}
	if err := f.queue.Provision(ctx); err != nil {
		return fmt.Errorf("create the streams: %w", err)
	}
	return nil
}

// credentialsName is the name of the file with the credentials, in the data directory. fleet.json contains them
// too, but exists only while the fleet runs.
const credentialsName = "credentials.json"

// credentials returns the credentials of the fleet's last start, so that workers that joined it can connect again
// after a restart. It generates those that are missing. A private fleet gets new ones.
func (f *Fleet) credentials() (config.FleetFile, error) {
	file := f.newCredentials()
	if f.o.Private {
		return file, nil
	}
	path := filepath.Join(f.o.Config.Data, credentialsName)
	last, err := config.ReadFleetFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return file, file.Write(path)
	}
	if err != nil {
		return file, fmt.Errorf("%w: remove the file to get new credentials", err)
	}
	file.Token = cmp.Or(last.Token, file.Token)
	file.NATS.Password = cmp.Or(last.NATS.Password, file.NATS.Password)
	file.S3.AccessKey = cmp.Or(last.S3.AccessKey, file.S3.AccessKey)
	file.S3.SecretKey = cmp.Or(last.S3.SecretKey, file.S3.SecretKey)
	for tenant, user := range file.NATS.Tenants {
		user.Password = cmp.Or(last.NATS.Tenants[tenant].Password, user.Password)
		file.NATS.Tenants[tenant] = user
	}
	return file, file.Write(path)
}

// newCredentials generates credentials.
func (f *Fleet) newCredentials() config.FleetFile {
	c := f.o.Config
	tenants := slices.Sorted(maps.Keys(c.Tenants))
	first := tenants[0]
	if _, ok := c.Tenants[config.DefaultTenant]; ok {
		first = config.DefaultTenant
	}
	data, err := filepath.Abs(c.Data) // for commands in other directories
	if err != nil {
		data = c.Data
	}
	file := config.FleetFile{
		Token: rand.Text(), Tenant: first, Data: data, PID: os.Getpid(), Started: time.Now().UTC(),
		Version: f.o.Version,
		NATS: config.FleetNATS{
			User: embedded.FleetUser, Password: rand.Text(),
			Tenants: map[string]config.FleetNATSUser{},
		},
		S3: config.FleetS3{Bucket: c.S3.Bucket, AccessKey: rand.Text(), SecretKey: rand.Text()},
	}
	for _, t := range tenants {
		file.NATS.Tenants[t] = config.FleetNATSUser{User: t, Password: rand.Text()}
	}
	return file
}

// startStores starts the queue and the object store concurrently.
func (f *Fleet) startStores(ctx context.Context) error {
	c, log := f.o.Config, f.o.Telemetry.Logger
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		users := make(map[string]embedded.NATSUser)
		for t, u := range f.File.NATS.Tenants {
			users[t] = embedded.NATSUser(u)
		}
		f.nats, err = embedded.StartNATS(ctx, embedded.NATSOptions{
			Dir: filepath.Join(c.Data, "nats"), Addr: c.NATS.Addr, Tenants: users, Log: log,
			Fleet: embedded.NATSUser{User: f.File.NATS.User, Password: f.File.NATS.Password},
		})
		if errors.Is(err, syscall.EADDRINUSE) { // another process has taken it since listen
			err = &httpserve.AddressError{Addr: c.NATS.Addr, Setting: "--nats", Err: err}
		}
		return err
	})
	g.Go(func() (err error) {
		s3, err := f.startS3(ctx, c.S3.Addr)
		if err == nil {
			f.s3.Store(s3)
		}
		return err
	})
	return g.Wait()
}

// ErrSamePort is the error for two parts with the same port.
var ErrSamePort = errors.New("give one of them another port (0 selects a free one)")

// listen listens on the address of the HTTP interface, and checks that the queue and the object store can listen on
// theirs. The child process of the object store could report such an error only in its log.
func listen(ctx context.Context, c *config.Config) (net.Listener, error) {
	flags := []string{"--http", "--nats", "--s3"}
	var open []net.Listener
	for i, addr := range []string{c.HTTP.Addr, c.NATS.Addr, c.S3.Addr} {
		l, err := httpserve.Listen(ctx, addr, flags[i])
		if err == nil {
			open = append(open, l)
			continue
		}
		_, port, _ := net.SplitHostPort(addr)
		for j, other := range open {
			_, taken, _ := net.SplitHostPort(other.Addr().String())
			if taken == port && errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%s and %s have the same port, %s: %w", flags[j], flags[i], port, ErrSamePort)
			}
			other.Close()
		}
		return nil, err
	}
	return open[0], errors.Join(open[1].Close(), open[2].Close())
}

// setAddresses sets the addresses and credentials of the parts in the settings and in the fleet file.
func (f *Fleet) setAddresses() {
	c, scheme := f.o.Config, "http://"
	if c.HTTP.TLSCert != "" {
		scheme = "https://"
	}
	f.File.URL = scheme + httpserve.Address(f.listener, c.HTTP.Addr)
	f.File.NATS.URL = f.nats.URL()
	f.File.S3.Endpoint = "http://" + f.s3.Load().Endpoint()
	c.UseEmbedded(f.File)
}

// server returns the HTTP interface. It accepts the tokens in the settings and in the fleet file.
func (f *Fleet) server() (*ingest.Server, error) {
	o, err := assembly.Ingest(f.o.Config, f.o.Telemetry, f.File)
	if err != nil {
		return nil, err
	}
	if f.tools, err = tooling.Toolbox(f.o.Config, storage.CatalogueObjects(f.o.Config),
		f.o.Telemetry.Logger); err != nil {
		return nil, err
	}
	if err := f.tools.Join(f.queue); err != nil {
		return nil, err
	}
	o.Tools, o.Skills = f.tools, f.tools.Skills()
	transport := &httpserve.InProcess{Caller: "bridge"}
	if f.o.Config.MCP.Enabled {
		f.bridge = bridge.New(assembly.Bridge(f.o.Config, f.o.Telemetry, f.o.Version, client.Options{
			URL: "http://localhost", HTTPClient: &http.Client{Transport: transport},
		}))
		o.Mounted.MCP = f.bridge.Handler()
	}
	server := assembly.Server(f.o.Config, f.o.Telemetry, o)
	server.Join(f.queue)
	transport.Handler = server.Handler()
	return server, nil
}

// PageLink returns a link that logs its holder in to the web page, once and within an hour. It is empty if the settings
// disable the page.
func (f *Fleet) PageLink() string {
	if f.page == "" {
		return ""
	}
	return f.File.URL + f.page
}

// writeFile writes fleet.json, unless the fleet is private.
func (f *Fleet) writeFile() error {
	if f.o.Private {
		return nil
	}
	if err := f.File.Write(f.Path()); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// Path returns the path of fleet.json, which exists while the fleet runs unless the fleet is private.
func (f *Fleet) Path() string { return filepath.Join(f.o.Config.Data, config.FleetFileName) }

// end removes fleet.json, waits until the parts have ended, and closes the stores. It returns why the fleet ended by
// itself. If Close has stopped the fleet, it returns the error of a part, if there is one.
func (f *Fleet) end(life context.Context) error {
	if !f.o.Private {
		if err := os.Remove(f.Path()); err != nil && !errors.Is(err, os.ErrNotExist) {
			f.o.Telemetry.Logger.WarnContext(life, "fleet file not removed", "error", err)
		}
	}
	err := f.parts.Wait()
	f.closeAll()
	if cause := context.Cause(life); !errors.Is(cause, errStopped) {
		return cause
	}
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// closeAll closes everything that Start has opened.
func (f *Fleet) closeAll() {
	if f.listener != nil {
		f.listener.Close()
	}
	if f.tools != nil {
		f.tools.Close()
	}
	if f.queue != nil {
		f.queue.Close()
	}
	f.closeS3()
	if f.nats != nil {
		f.nats.Close()
	}
	f.unlock()
}

// Done returns a channel that is closed when the fleet has ended, whether by Close or because a part has failed.
func (f *Fleet) Done() <-chan struct{} { return f.done }

// Close stops the fleet. The fleet claims no more tasks; running tasks may finish within worker.drain; those that have
// not are requeued. Close returns when everything has ended. If the fleet had ended by itself, Close returns the
// reason.
func (f *Fleet) Close() error {
	f.stop(errStopped)
	<-f.done
	return f.err
}
