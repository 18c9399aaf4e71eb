package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/wire"
)

// errUsage marks what is wrong with the command line.
var errUsage = errors.New("usage")

// setup is the settings, and the fleet that the command line named, if any.
type setup struct {
	*config.Config
	fleet config.FleetFile
}

func settings(args, env []string, stderr io.Writer) (setup, error) {
	var s setup
	src := config.Source{Env: env}
	fleet := ""
	f := flag.NewFlagSet("ingest", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&src.File, "config", "", "configuration `FILE`")
	f.StringVar(&fleet, "fleet", "", "fleet.json of a fleet to join")
	for name, key := range map[string]string{"http": "http.addr", "nats": "nats.url"} {
		f.Func(name, key+" of the configuration", func(v string) error {
			src.Flags = append(src.Flags, config.Flag{Key: key, Value: v, Name: "--" + name})
			return nil
		})
	}
	err := f.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if errors.Is(err, flag.ErrHelp) {
		return s, err
	}
	if err != nil {
		return s, fmt.Errorf("%w: %w", errUsage, err)
	}
	if fleet != "" {
		if s.fleet, err = config.ReadFleetFile(fleet); err != nil {
			return s, fmt.Errorf("%w: %w", errUsage, err)
		}
		src.Flags = append(s.fleet.Settings("--fleet "+fleet), src.Flags...)
	}
	if s.Config, err = config.Load(src); err != nil {
		return s, err
	}
	if s.NATS.URL == "" {
		return s, fmt.Errorf("%w: the address of the queue is missing: give --nats, nats.url or --fleet; `codefleet up` needs none of them", errUsage)
	}
	return s, nil
}

func serve(ctx context.Context, s setup, stdout, stderr io.Writer) (err error) {
	t, err := telemetry.Setup(ctx, wire.Telemetry(s.Config, "ingest", version, stderr))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shutdown(ctx, t)) }()
	for _, w := range s.Warnings {
		t.Logger.WarnContext(ctx, "configuration", "warning", w)
	}
	o, err := s.options(t)
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.HTTP.Addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("address %s is in use: stop what listens there or give --http another", s.HTTP.Addr)
	}
	if err != nil {
		return err
	}
	defer ln.Close() // for what goes wrong before Serve has it
	if o.Jobs, err = s.queue(ctx, t); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer o.Jobs.Close()
	scheme := "http"
	if o.TLS != nil {
		scheme = "https"
	}
	fmt.Fprintf(stdout, "%s://%s\n", scheme, ln.Addr())
	return ingest.New(o).Serve(ctx, ln)
}

// options are those of the interface, but for the queue.
func (s setup) options(t *telemetry.Telemetry) (ingest.Options, error) {
	var own []ingest.Token
	if s.fleet.Token != "" {
		own = append(own, ingest.Token{
			Name: "up", SHA256: sha256.Sum256([]byte(s.fleet.Token)), Tenant: s.fleet.Tenant,
			Scopes: []string{ingest.ScopeSubmit, ingest.ScopeRead, ingest.ScopeOperator},
		})
	}
	tokens, err := wire.Tokens(s.Config, own...)
	if err != nil {
		return ingest.Options{}, err
	}
	tls, err := wire.ServerTLS(s.Config)
	o := ingest.Options{
		Tokens: tokens, Hosts: s.HTTP.AllowedHosts, Origins: s.HTTP.AllowedOrigins, TLS: tls,
		Log: t.Logger, Tracer: t.TracerProvider.Tracer("codefleet/ingest"),
	}
	if s.Telemetry.Metrics {
		o.Metrics = t.MetricsHandler
	}
	return o, err
}

// queue connects, as soon as there is a queue to connect to.
func (s setup) queue(ctx context.Context, t *telemetry.Telemetry) (*jobs.Client, error) {
	o, err := wire.Jobs(s.Config, t, "codefleet-ingest")
	if err != nil {
		return nil, err
	}
	o.WaitForServer = true
	c, err := jobs.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := c.Provision(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func shutdown(ctx context.Context, t *telemetry.Telemetry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return t.Shutdown(ctx)
}
