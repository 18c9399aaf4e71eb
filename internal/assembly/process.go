package assembly

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// ErrUsage is wrapped by errors of the command line and of the settings.
var ErrUsage = errors.New("usage")

// Process is what a program of a fleet with servers of its own begins with.
type Process struct {
	Config    *config.Config
	Telemetry *telemetry.Telemetry
	Queue     *jobs.Client
	Fleet     config.FleetFile // of --fleet; zero without
}

// flushTime bounds the sending of the last spans.
const flushTime = 5 * time.Second

// Open reads the flags and settings of a program and starts its telemetry. Every program has --config FILE, --fleet FILE (a fleet.json to join) and --nats URL; more are
// flags of its own, by name with the setting that each one sets. The error is flag.ErrHelp after -h.
func Open(ctx context.Context, program, version string, args, env []string, stderr io.Writer, more map[string]string) (*Process, error) {
	p := &Process{}
	if err := p.settings(program, args, env, stderr, more); err != nil {
		return nil, err
	}
	t, err := telemetry.Setup(ctx, Telemetry(p.Config, program, version, stderr))
	if err != nil {
		return nil, err
	}
	p.Telemetry = t
	for _, w := range p.Config.Warnings {
		t.Logger.WarnContext(ctx, "setting without effect", "setting", w)
	}
	return p, nil
}

// Connect connects to the queue, waiting for it until ctx ends.
func (p *Process) Connect(ctx context.Context, program string) error {
	o, err := Jobs(p.Config, p.Telemetry, "codefleet "+program)
	if err != nil {
		return err
	}
	o.Server.Wait = true
	if p.Queue, err = jobs.Connect(ctx, o); err != nil {
		return fmt.Errorf("connect to the queue: %w", err)
	}
	if err := p.Queue.Provision(ctx); err != nil {
		return fmt.Errorf("make the streams: %w", err)
	}
	return nil
}

func (p *Process) settings(program string, args, env []string, stderr io.Writer, more map[string]string) error {
	source := config.Source{Env: env}
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&source.File, "config", "", "configuration `FILE` (CODEFLEET_CONFIG)")
	fleet := flags.String("fleet", "", "`FILE` fleet.json of the fleet to join, instead of nats.* and s3.*")
	setting := func(name, key string) {
		flags.Func(name, key+" of the configuration", func(v string) error {
			source.Flags = append(source.Flags, config.Flag{Key: key, Value: v, Name: "--" + name})
			return nil
		})
	}
	setting("nats", "nats.url")
	for name, key := range more {
		setting(name, key)
	}
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err == nil && *fleet != "" {
		p.Fleet, err = config.ReadFleetFile(*fleet)
		source.Flags = append(p.Fleet.Settings("--fleet "+*fleet), source.Flags...)
	}
	if err == nil {
		p.Config, err = config.Load(source)
	}
	if err == nil && p.Config.NATS.URL == "" {
		err = errors.New("the address of the queue is missing: give --nats, nats.url or --fleet; `codefleet up` needs none of them")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return nil
}

// Exit is the exit code for what a program of the fleet ended with, which it prints: 0 when it was
// asked to end or to help, 2 for usage and configuration, 1 for the rest.
func Exit(ctx context.Context, program string, err error, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) || (ctx.Err() != nil && errors.Is(err, context.Canceled)) {
		return 0
	}
	fmt.Fprintf(stderr, "%s: %v\n", program, err)
	if errors.Is(err, ErrUsage) {
		return 2
	}
	return 1
}

// Close ends the connection and sends the last spans.
func (p *Process) Close() error {
	if p.Queue != nil {
		p.Queue.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	return p.Telemetry.Shutdown(ctx)
}

// ServeHealth serves /healthz and /metrics on telemetry.addr until ctx ends, or nothing when it is
// empty. It returns when it listens.
func (p *Process) ServeHealth(ctx context.Context) error {
	if p.Config.Telemetry.Addr == "" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", p.Config.Telemetry.Addr)
	if err != nil {
		return fmt.Errorf("telemetry.addr: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.Telemetry.MetricsHandler)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: flushTime}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			p.Telemetry.Logger.ErrorContext(ctx, "health interface ended", "error", err)
		}
	}()
	return nil
}
