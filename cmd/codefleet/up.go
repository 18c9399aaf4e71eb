package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/httpserve"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/up"
)

// flushTime is the time limit for sending the last spans.
const flushTime = 5 * time.Second

// settingFlag is a flag that overrides a setting.
type settingFlag struct{ flag, key, help string }

var upFlags = []settingFlag{
	{"data", "data", "data `DIRECTORY`"},
	{"http", "http.addr", "`ADDRESS` of the HTTP interface (default 127.0.0.1:8787)"},
	{"nats", "nats.addr", "`ADDRESS` of the queue (default 127.0.0.1:4222)"},
	{"s3", "s3.addr", "`ADDRESS` of the object store (default 127.0.0.1:9000)"},
	{"workspace", "execution.workspace_dir", "`DIRECTORY` to keep in sync with the default tenant's workspace"},
}

func (a *app) upCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "up",
		Short: "Run a whole fleet on this machine: queue, object store, HTTP interface and a worker",
		Long: "Run a whole fleet on this machine, in one process tree. It prints the addresses, then\n" +
			"`ready`, and runs until SIGINT or SIGTERM. Running tasks may then finish within\n" +
			"worker.drain; a second signal ends the fleet at once.",
	}
	declareSettings(c.Flags(), upFlags)
	attached := c.Flags().Bool("attached", false, "end when standard input closes, for programs that start a fleet")
	c.RunE = a.do(func(ctx context.Context, _ []string) error {
		if a.fleet != "" {
			return usage("--fleet has no effect with up, which starts a fleet of its own").
				try("codefleet up --data DIRECTORY")
		}
		if *attached {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			go func() { // ends with standard input, or with the process
				_, _ = io.Copy(io.Discard, a.stdin)
				cancel()
			}()
		}
		return a.up(ctx, changedSettings(c.Flags(), upFlags))
	})
	return c
}

func declareSettings(flags *pflag.FlagSet, settings []settingFlag) {
	for _, s := range settings {
		flags.String(s.flag, "", s.help)
	}
}

// changedSettings returns the settings whose flags are on the command line.
func changedSettings(flags *pflag.FlagSet, settings []settingFlag) []config.Flag {
	var list []config.Flag
	for _, s := range settings {
		if flags.Changed(s.flag) {
			value := flags.Lookup(s.flag).Value.String()
			list = append(list, config.Flag{Key: s.key, Value: value, Name: "--" + s.flag})
		}
	}
	return list
}

// addresses is what `codefleet up -o json` prints when the fleet is ready. Fleet is the path of fleet.json, which has
// the credentials.
type addresses struct {
	HTTP  string `json:"http"`
	Page  string `json:"page,omitempty"` // logs its holder in, once and within an hour
	NATS  string `json:"nats"`
	S3    string `json:"s3"`
	Data  string `json:"data"`
	Fleet string `json:"fleet"`
	PID   int    `json:"pid"`
	Model string `json:"model"` // who writes the programs of tasks with a description

	Weather string `json:"weather"` // weather.provider
}

func (a *app) up(ctx context.Context, flags []config.Flag) (err error) {
	c, err := a.load(flags...)
	if err != nil {
		return err
	}
	start, steps := time.Now(), a.progress()
	t, err := telemetry.Setup(ctx, assembly.Telemetry(c, "up", version, steps.above(a.stderr)))
	if err != nil {
		return usage("%v", err)
	}
	defer func() { err = errors.Join(err, flush(ctx, t)) }()
	f, err := up.Start(ctx, up.Options{Config: c, Telemetry: t, Version: version, Worker: a.worker, Step: steps.show})
	steps.clear()
	if err != nil {
		return cannotStart(ctx, err)
	}
	out := addresses{
		HTTP: f.File.URL, Page: f.PageLink(), NATS: f.File.NATS.URL, S3: f.File.S3.Endpoint, Data: c.Data,
		Fleet: f.Path(), PID: f.File.PID, Model: modelText(c), Weather: c.Weather.Provider,
	}
	if err := a.print(out, func(w io.Writer) { showAddresses(w, out, time.Since(start)) }); err != nil {
		return errors.Join(err, f.Close())
	}
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.stderr, "stopping; running tasks have", c.Worker.Drain,
			"to finish (a second signal stops them)")
	case <-f.Done():
	}
	if err := f.Close(); err != nil {
		return &failure{code: errcode.ExitFailed, message: "run the fleet", err: err, hint: "codefleet doctor"}
	}
	return nil
}

func showAddresses(w io.Writer, a addresses, startup time.Duration) {
	row(w, "http", a.HTTP)
	if a.Page != "" {
		row(w, "page", a.Page, "(logs you in, once; codefleet page prints another link)")
	}
	row(w, "nats", a.NATS)
	row(w, "s3", a.S3)
	row(w, "data", a.Data)
	row(w, "fleet", a.Fleet, "(credentials; other commands find the fleet with this file)")
	row(w, "model", a.Model)
	if a.Weather == config.WeatherSample {
		row(w, "weather", "sample (made up; for real weather, set weather.provider: open-meteo)")
	}
	row(w, "ready after "+duration(startup))
	row(w, "ready")
}

// modelText describes the model that writes programs, or how to configure one.
func modelText(c *config.Config) string {
	if c.ModelWithoutKey() {
		return "none; the rules write programs (to use a model, " + c.ModelKeys() + ")"
	}
	if !c.LLM.Enabled {
		return "none; the rules write programs (llm.enabled is false)"
	}
	name := c.LLM.Model
	if c.LLM.Provider == "azure_openai" {
		name = c.LLM.AzureDeploymentName
	}
	return name + " (" + c.LLM.Provider + ")"
}

// cannotStart adds an exit code and a hint to an error of up.Start.
func cannotStart(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if invalid, ok := errors.AsType[*config.InvalidError](err); ok {
		f := usage("%v", invalid).try("codefleet config check")
		switch invalid.Problems[0].Key {
		case "nats.replicas": // a wrong value only for this command
			f.hint = "remove nats.replicas"
		case "execution.workspace_dir":
			f.hint = "give the live folder (execution.workspace_dir, WORKSPACE_DIR) a directory that nothing else names"
		}
		return f
	}
	f := &failure{code: errcode.ExitFailed, message: "start the fleet", err: err, hint: "codefleet doctor"}
	if errors.Is(err, up.ErrInUse) {
		f.code, f.hint = errcode.ExitUsage,
			"use the running fleet, for example with codefleet tasks, or start another with codefleet up --data DIR; "+
				"if a codefleet run that has started its own fleet uses the directory, wait until it ends"
	}
	_, wrongAddress := errors.AsType[*httpserve.AddressError](err)
	if wrongAddress || errors.Is(err, up.ErrSamePort) || errors.Is(err, up.ErrUnusable) {
		f.code, f.hint = errcode.ExitUsage, "codefleet up --help"
	}
	return f
}

// flush sends the last spans, even after ctx has ended.
func flush(ctx context.Context, t *telemetry.Telemetry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	return t.Shutdown(ctx)
}
