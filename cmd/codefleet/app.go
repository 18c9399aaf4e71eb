package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/up"
)

// app is what all commands share: the streams and environment of the process, and the global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string
	signals        <-chan os.Signal
	exit           func(int) // called at a second signal

	worker up.Worker // of `up`

	fleet  string // --fleet
	config string // --config
	output string // -o: text or json
}

// main runs one command line and returns the exit code.
func (a *app) main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	return a.report(root.ExecuteContext(ctx))
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "codefleet",
		Short:         "Run agents' code in sandboxes, on one machine or many",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.output != "text" && a.output != "json" {
				return usage("-o %s: want text or json", a.output)
			}
			return nil
		},
	}
	f := root.PersistentFlags()
	f.StringVarP(&a.output, "output", "o", "text",
		"output format: text, or json (standard output then has only the documented JSON)")
	f.StringVar(&a.fleet, "fleet", "", "fleet.json of the fleet to use (CODEFLEET_FLEET)")
	f.StringVar(&a.config, "config", "", "configuration file (CODEFLEET_CONFIG)")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &failure{code: errcode.ExitUsage, message: err.Error(), hint: c.CommandPath() + " --help"}
	})
	root.AddGroup(&cobra.Group{ID: "tasks", Title: "Tasks:"}, &cobra.Group{ID: "files", Title: "Files and state:"},
		&cobra.Group{ID: "fleet", Title: "The fleet:"})
	group := func(id string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("tasks",
		a.runCommand(), a.submitCommand(), a.statusCommand(), a.resultCommand(), a.logsCommand(), a.cancelCommand(),
		a.approvalsCommand(), a.approveCommand(), a.tasksCommand(), a.deadCommand(), a.auditCommand())
	group("files", a.workspaceCommand(), a.stateCommand())
	group("fleet",
		a.upCommand(), a.mcpCommand(), a.toolsCommand(), a.workersCommand(), a.poolCommand(), a.doctorCommand(),
		a.benchCommand(), a.configCommand(), a.toolServerCommand())
	root.AddCommand(a.versionCommand())
	_ = root.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	strictHelp(root)
	explainArgErrors(root)
	return root
}

// explainArgErrors adds the name of the command and its usage line to errors about the number of arguments.
func explainArgErrors(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if _, ours := errors.AsType[*failure](err); err == nil || ours {
				return err
			}
			line := c.Use
			if c.HasParent() {
				line = c.Parent().CommandPath() + " " + c.Use
			}
			return &failure{code: errcode.ExitUsage, message: c.Name() + ": " + err.Error(), hint: line}
		}
	}
	for _, sub := range c.Commands() {
		explainArgErrors(sub)
	}
}

// strictHelp makes cobra's built-in commands reject unknown arguments, as all others do.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error { _, _, err := root.Find(args); return err }
		case "completion":
			c.Args, c.RunE = noArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
}

// do returns the RunE of a command whose context ends at the first signal.
func (a *app) do(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		ctx, stop := a.interruptible(c.Context())
		defer stop()
		return fn(ctx, args)
	}
}

// lookup returns the value of an environment variable, or an empty string.
func (a *app) lookup(name string) string {
	for _, e := range slices.Backward(a.env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// interruptible returns a context that the first signal cancels. A second signal ends the process.
func (a *app) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		select {
		case <-a.signals:
			cancel(errInterrupted)
		case <-done:
			return
		}
		select {
		case <-a.signals:
			a.exit(130)
		case <-done:
		}
	}()
	return ctx, func() { close(done); cancel(nil) }
}

// connect returns a client of the fleet that the flags and the environment name. It retries a request for retryFor;
// a negative duration disables retries.
func (a *app) connect(ctx context.Context, retryFor time.Duration) (*client.Client, error) {
	found, err := client.Locate(a.fleet)
	if err != nil {
		return nil, noFleet(err)
	}
	found.Source, found.RetryFor = "codefleet/cli", retryFor
	c, err := client.New(ctx, found)
	if err != nil {
		return nil, noFleet(err)
	}
	return c, nil
}

// fleetCommand is a command that uses a fleet.
type fleetCommand func(ctx context.Context, c *client.Client, args []string) error

// withFleet calls fn with a client that retries for a short time only: a person is waiting at a prompt.
func (a *app) withFleet(fn fleetCommand) func(*cobra.Command, []string) error {
	return a.do(func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx, patience)
		if err != nil {
			return err
		}
		defer c.Close()
		return markCall(fn(ctx, c, args))
	})
}

// load reads the configuration, with flags on top, and prints its warnings.
func (a *app) load(flags ...config.Flag) (*config.Config, error) {
	c, err := config.Load(config.Source{File: a.config, Env: a.env, Flags: flags})
	if err != nil {
		return nil, err
	}
	for _, w := range c.Warnings {
		fmt.Fprintln(a.stderr, "warning:", w)
	}
	return c, nil
}

// print writes v with -o json, and calls write otherwise.
func (a *app) print(v any, write func(w io.Writer)) error {
	if a.output == "json" {
		e := json.NewEncoder(a.stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	write(w)
	return w.Flush()
}

// row writes a line of a table. Cells may hold untrusted text.
func row(w io.Writer, cells ...any) {
	columns := make([]string, len(cells))
	for i, c := range cells {
		columns[i] = printable(fmt.Sprint(c))
	}
	fmt.Fprintln(w, strings.Join(columns, "\t"))
}

// printable returns untrusted text as one line that a terminal may show.
func printable(s string) string {
	return text.Printable(strings.NewReplacer("\t", " ", "\n", " ").Replace(s))
}

func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
