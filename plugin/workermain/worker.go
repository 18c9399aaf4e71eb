// Package workermain runs a worker with plugins. The worker has the same settings, sandboxes and guarantees as
// bin/worker, and can join the same fleets.
package workermain

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/assembly/storage"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/pluginhost"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/internal/state/heads"
	"github.com/codefleet/codefleet/plugin"
)

// Config configures Run.
type Config struct {
	Args    []string  // flags of bin/worker: --config FILE, --fleet FILE, --nats URL, --version
	Env     []string  // environment, in the form of os.Environ
	Stdout  io.Writer // receives the version after --version; nil selects Stderr
	Stderr  io.Writer // receives the log and usage errors; nil discards them
	Version string    // shown in lists of workers; the default is "dev"
}

// Main is the main function of a worker: os.Exit(workermain.Main(myPlugin{})). It runs until SIGINT or SIGTERM, lets
// running tasks finish within worker.drain, and returns the exit code: 0 after a signal, 2 for errors of usage or
// configuration, 1 for other errors. A second signal ends the process at once.
func Main(plugins ...plugin.Plugin) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process
	env := os.Environ()          //nolint:forbidigo // Main is the main function of a command
	c := Config{Args: os.Args[1:], Env: env, Stdout: os.Stdout, Stderr: os.Stderr}
	return Exit(ctx, Run(ctx, c, plugins...), os.Stderr)
}

// Exit prints the error of Run, and returns the exit code that Main would return for it.
func Exit(ctx context.Context, err error, stderr io.Writer) int {
	return process.Exit(ctx, "worker", err, stderr)
}

// Run runs a worker until ctx ends. Then the worker claims no more tasks and lets running tasks finish within
// worker.drain. Plugins are invoked in the given order. If a plugin has no hook, no unique name, or a method with the
// name of a hook but another signature, Run returns an error before the worker starts.
func Run(ctx context.Context, c Config, list ...plugin.Plugin) error {
	if c.Stderr == nil {
		c.Stderr = io.Discard
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	p, err := process.Open(ctx, process.Program{
		Name: "worker", Version: c.Version, Args: c.Args, Env: c.Env, Stdout: c.Stdout, Stderr: c.Stderr,
	})
	if err != nil {
		return err
	}
	ctx, drain := context.WithCancel(ctx) // an operator's order to drain has the effect of SIGTERM
	defer drain()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	context.AfterFunc(ctx, func() { time.AfterFunc(p.Config.Worker.Drain, cancel) })
	end, stop := clock.After(work, process.CloseTime)
	defer stop()
	err = serve(ctx, work, p, assembly.WorkerOptions{Version: c.Version, Drain: drain}, list)
	if closing := p.Close(end); end.Err() == nil { // connections that do not close in time are not a failure
		err = errors.Join(err, closing)
	}
	return err
}

// serve runs a worker with the options o, to which it adds those that depend on p and on the plugins in list. The
// worker claims tasks until accept ends, and runs them until work ends.
func serve(
	accept, work context.Context, p *process.Process, o assembly.WorkerOptions, list []plugin.Plugin,
) error {
	log := p.Telemetry.Logger
	warnings, err := p.Config.CheckFiles()
	if err != nil {
		return process.UsageError(err)
	}
	for _, w := range warnings {
		log.WarnContext(accept, "doubtful setting", "setting", w)
	}
	if p.Config.S3.Endpoint == "" {
		return process.UsageError(errors.New("the address of the object store is missing: give s3.endpoint or " +
			"--fleet; `codefleet up` needs neither"))
	}
	set, err := pluginhost.New(log, list...)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		log.InfoContext(accept, "plugins loaded", "hooks", set.Hooks())
	}
	starting := func(context.Context) error { return process.ErrStarting }
	for _, part := range []string{"queue", "object store", "sandbox"} {
		p.Check(part, starting)
	}
	if err := p.ServeHealth(work); err != nil {
		return err
	}
	join := func(ctx context.Context) (*jobs.Client, error) {
		store, err := storage.Open(p.Config, "", slog.New(slog.DiscardHandler), nil)
		if err != nil {
			return nil, err
		}
		p.Check("object store", func(ctx context.Context) error { return objects.Responds(ctx, store.Repo().Bucket) })
		if err := p.AwaitStore(ctx, store); err != nil {
			return nil, err
		}
		found, err := heads.Probe(ctx, store.Repo().Bucket)
		if err != nil {
			return nil, err
		}
		log.InfoContext(ctx, "object store probed", "summary", found.Summary, "ms", found.Latency.Milliseconds())
		if err = p.Connect(ctx); err == nil {
			p.Check("queue", p.Queue.Ready)
		}
		return p.Queue, err
	}
	ready := func() {
		log.InfoContext(accept, "worker ready", "worker", p.Config.Worker.Name, "slots", p.Config.Slots())
	}
	p.Config.Execution.WorkspaceDir = "" // only `codefleet up` has a live folder
	o.Config, o.Telemetry, o.Plugins, o.Join, o.Ready = p.Config, p.Telemetry, set, join, ready
	o.Pool = func(pool *executor.Pool) {
		p.Check("sandbox", func(context.Context) error { return poolError(pool) })
	}
	return process.RunWorker(accept, work, o)
}

// poolError returns why the pool has no boxes. It returns nil if the pool has a box, or has not failed to start one.
func poolError(pool *executor.Pool) error {
	s := pool.Stats()
	if s.LastError != "" && s.Ready+s.Bound+s.Acquired == 0 {
		return errors.New(s.LastError)
	}
	return nil
}
