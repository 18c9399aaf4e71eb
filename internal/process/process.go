// Package process does what the fleet's commands have in common: it reads flags and settings, starts telemetry,
// connects to the queue, serves health checks, and converts an error to an exit code. The key type is Process.
package process

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/assembly/queue"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/httpserve"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// ErrUsage matches errors in the command line and in the settings. UsageError marks them without changing their text.
var ErrUsage = errors.New("usage")

// usageError is an error in the command line or in the settings.
type usageError struct{ error }

func (e usageError) Is(target error) bool { return target == ErrUsage }
func (e usageError) Unwrap() error        { return e.error }

// UsageError marks err as an ErrUsage. The text stays the same.
func UsageError(err error) error { return usageError{err} }

// Program describes a command to Open. Name and Stderr are required.
type Program struct {
	Name, Version string
	Args, Env     []string
	Stderr        io.Writer
	Stdout        io.Writer           // for --version; nil selects Stderr
	Settings      map[string]string   // flags that override settings, such as "http" for "http.addr"
	Flags         func(*flag.FlagSet) // adds flags that are not settings; may be nil
	NoQueue       bool                // the command uses the fleet over HTTP, so it has neither --fleet nor --nats
	NoModel       bool                // see config.Source
}

// Process is a running command.
type Process struct {
	Config    *config.Config
	Telemetry *telemetry.Telemetry
	Queue     *jobs.Client     // set by Connect
	Fleet     config.FleetFile // the file of --fleet; zero without the flag
	program   Program
	checks    checks
}

// flushTime is the time limit for sending the last spans.
const flushTime = 5 * time.Second

// Open reads the flags and settings of a command and starts its telemetry. Every command has --config FILE; a command
// that uses the queue also has --fleet FILE, a fleet.json to join, and --nats URL. Open waits until the fleet.json
// exists, because a worker or ingest may start before its fleet. The error is flag.ErrHelp after -h and --version, and
// an ErrUsage if flags or settings are wrong.
func Open(ctx context.Context, program Program) (*Process, error) {
	p := &Process{program: program}
	if err := p.readSettings(ctx); err != nil {
		return nil, err
	}
	t, err := telemetry.Setup(ctx, assembly.Telemetry(p.Config, program.Name, program.Version, program.Stderr))
	if err != nil {
		return nil, err
	}
	p.Telemetry = t
	for _, w := range p.Config.Warnings {
		t.Logger.WarnContext(ctx, "doubtful setting", "setting", w)
	}
	return p, nil
}

// Connect connects to the queue and creates its streams. It waits until the queue responds and the streams have
// leaders, or ctx ends.
func (p *Process) Connect(ctx context.Context) error {
	o, err := queue.Options(p.Config, p.Telemetry, "codefleet "+p.program.Name)
	if err != nil {
		return err
	}
	o.Server.Wait = true
	if p.Queue, err = jobs.Connect(ctx, o); err != nil {
		return fmt.Errorf("connect to the queue: %w", err)
	}
	return p.provision(ctx)
}

// readSettings reads the settings from the command line, the environment and the configuration file.
func (p *Process) readSettings(ctx context.Context) error {
	source := config.Source{Env: p.program.Env, NoModel: p.program.NoModel}
	flags := flag.NewFlagSet(p.program.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // Exit prints the errors, so Parse must not
	version := flags.Bool("version", false, "print the version and exit")
	flags.StringVar(&source.File, "config", "", "configuration `FILE` (CODEFLEET_CONFIG)")
	settings, fleet := maps.Clone(p.program.Settings), new(string)
	if !p.program.NoQueue {
		fleet = flags.String("fleet", "", "fleet.json `FILE` of the fleet to join, instead of nats.* and s3.*")
		if settings == nil {
			settings = map[string]string{}
		}
		settings["nats"] = "nats.url"
	}
	for name, key := range settings {
		flags.Func(name, "overrides the setting "+key, func(v string) error {
			source.Flags = append(source.Flags, config.Flag{Key: key, Value: v, Name: "--" + name})
			return nil
		})
	}
	if p.program.Flags != nil {
		p.program.Flags(flags)
	}
	err := flags.Parse(p.program.Args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(p.program.Stderr)
		printFlags(flags, p.program.Name)
		return err
	}
	if err != nil {
		err = fmt.Errorf("%s (%s --help lists the flags)", twoDashes(err.Error()), p.program.Name)
	}
	if err == nil && *version {
		fmt.Fprintf(cmp.Or(p.program.Stdout, p.program.Stderr), "%s %s (%s, %s/%s)\n", p.program.Name,
			p.program.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return flag.ErrHelp
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err == nil && *fleet != "" {
		if err = p.readFleetFile(ctx, *fleet, source); ctx.Err() != nil {
			return ctx.Err()
		}
		source.Flags, source.Fleet = append(p.Fleet.Settings("--fleet "+*fleet), source.Flags...), *fleet
	}
	if err == nil {
		p.Config, err = config.Load(source)
	}
	if err == nil && !p.program.NoQueue && p.Config.NATS.URL == "" {
		err = errors.New("the address of the queue is missing: give --nats, nats.url or --fleet; " +
			"`codefleet up` needs none of them")
	}
	if err == nil && !p.program.NoQueue {
		err = p.Config.CheckQueueFiles()
	}
	if err != nil {
		return UsageError(err)
	}
	return nil
}

// readFleetFile reads a fleet.json into p.Fleet. It waits until the file exists, unless the other settings are wrong.
func (p *Process) readFleetFile(ctx context.Context, path string, others config.Source) (err error) {
	for waited := false; ; waited = true {
		if p.Fleet, err = config.ReadFleetFile(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !waited {
			if _, err := config.Load(others); err != nil {
				return err
			}
			NoteWaiting(p.program.Stderr, p.program.Name, path)
		}
		if err := clock.Sleep(ctx, waitInterval); err != nil {
			return err
		}
	}
}

// NoteWaiting says that a program waits for a fleet.json.
func NoteWaiting(stderr io.Writer, program, path string) {
	fmt.Fprintf(stderr, "%s: waiting for %s, which `codefleet up` writes\n", program, path)
}

// printFlags prints the flags with two dashes, as the documentation writes them. One dash works, too.
func printFlags(flags *flag.FlagSet, name string) {
	w := flags.Output()
	fmt.Fprintf(w, "Usage: %s [FLAG...]\n", name)
	flags.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		fmt.Fprintf(w, "  --%s\n    \t%s\n", strings.TrimSpace(f.Name+" "+strings.ToUpper(value)), text)
	})
}

// twoDashes returns an error of package flag with the flag as printFlags writes it.
func twoDashes(message string) string {
	for _, before := range []string{"not defined: -", "needs an argument: -", "for flag -", "for -"} {
		if text, name, ok := strings.Cut(message, before); ok {
			return text + before + "-" + name
		}
	}
	return message
}

// Exit prints the error of a command and returns its exit code: 2 for an ErrUsage, and 1 for other errors. Without an
// error, and after a signal, -h or --version, it prints nothing and returns 0.
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

// Close closes the connection to the queue and sends the last spans. It gives up when ctx ends or after flushTime.
func (p *Process) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	closed := make(chan error, 1)
	go func() { // outlives Close only until the process exits
		if p.Queue != nil {
			p.Queue.Close()
		}
		closed <- p.Telemetry.Shutdown(ctx)
	}()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("close connections: %w", context.Cause(ctx))
	}
}

// ServeHealth serves /healthz and /metrics on telemetry.addr until ctx ends. It returns as soon as it listens. If
// telemetry.addr is empty, it does nothing.
func (p *Process) ServeHealth(ctx context.Context) error {
	if p.Config.Telemetry.Addr == "" {
		return nil
	}
	l, err := listen(ctx, p.Config.Telemetry.Addr, "telemetry.addr")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.Telemetry.MetricsHandler)
	mux.Handle("GET /healthz", &p.checks)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: flushTime}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			p.Telemetry.Logger.ErrorContext(ctx, "health interface ended", "error", err)
		}
	}()
	return nil
}

// Listen listens on addr, the address of an HTTP interface. If that is impossible, the error is an ErrUsage that
// suggests another value of the flag --http.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	return listen(ctx, addr, "--http")
}

func listen(ctx context.Context, addr, setting string) (net.Listener, error) {
	l, err := httpserve.Listen(ctx, addr, setting)
	if _, ok := errors.AsType[*httpserve.AddressError](err); ok {
		err = UsageError(err)
	}
	return l, err
}
