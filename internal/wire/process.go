package wire

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

// Process is what a program of a fleet with servers of its own begins with.
type Process struct {
	Config    *config.Config
	Telemetry *telemetry.Telemetry
	Queue     *jobs.Client
}

// flushTime bounds the sending of the last spans.
const flushTime = 5 * time.Second

// Open reads the flags and settings of a program and connects to its queue, waiting for it until ctx
// ends. The program's flags are --config FILE and --fleet FILE, a fleet.json to join.
func Open(ctx context.Context, program, version string, args, env []string, stderr io.Writer) (*Process, error) {
	c, err := settings(program, args, env, stderr)
	if err != nil {
		return nil, err
	}
	t, err := telemetry.Setup(ctx, Telemetry(c, program, version, stderr))
	if err != nil {
		return nil, err
	}
	for _, w := range c.Warnings {
		t.Logger.WarnContext(ctx, "setting without effect", "setting", w)
	}
	p := &Process{Config: c, Telemetry: t}
	o, err := Jobs(c, t, "codefleet "+program)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	o.WaitForServer = true
	t.Logger.InfoContext(ctx, "connecting to the queue", "program", program, "version", version)
	if p.Queue, err = jobs.Connect(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the queue: %w", err), p.Close())
	}
	if err := p.Queue.Provision(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("make the streams: %w", err), p.Close())
	}
	return p, nil
}

func settings(program string, args, env []string, stderr io.Writer) (*config.Config, error) {
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("config", "", "configuration `file` (CODEFLEET_CONFIG)")
	fleet := flags.String("fleet", "", "`fleet.json` of the fleet to join, instead of nats.* and s3.*")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%q is one word too many", flags.Arg(0))
	}
	source := config.Source{File: *file, Env: env}
	if *fleet != "" {
		f, err := config.ReadFleetFile(*fleet)
		if err != nil {
			return nil, err
		}
		source.Flags = f.Settings("--fleet")
	}
	c, err := config.Load(source)
	if err != nil {
		return nil, err
	}
	if c.NATS.URL == "" {
		return nil, errors.New("nats.url is not set: give it (CODEFLEET_NATS_URL), or --fleet FILE; `codefleet up` runs a fleet that needs neither")
	}
	return c, nil
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
