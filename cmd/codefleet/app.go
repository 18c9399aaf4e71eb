package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// app holds the streams and environment of the process, the global flags, and what several commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string
	signals        <-chan os.Signal
	exit           func(int)   // called at a signal that ends the process at once
	editing        atomic.Bool // whether the user's editor runs

	worker up.Worker // runs the worker of a fleet that `up` or `run` starts

	fleet  string // --fleet
	config string // --config
	output string // -o: text or json
	color  string // --color: auto, always or never

	// watchInterval is how long tasks --watch waits before it lists the tasks again, and how long it and logs -f wait
	// before they repeat a request that failed. Zero selects defaultWatchInterval.
	watchInterval time.Duration

	executed *cobra.Command // the command of the command line, once its flags are known

	explain bool // --explain of run and result: if no program was written, print an unfinished one

	notedToken sync.Once // the note that CODEFLEET_TOKEN is not used
}

// main runs one command line and returns the exit code.
func (a *app) main(ctx context.Context, args []string) int {
	out := &checkedWriter{Writer: a.stdout}
	if !isTerminal(a.stdout) {
		a.stdout = out
	}
	if !isTerminal(a.stdin) {
		a.stdin = &onceReader{Reader: a.stdin}
	}
	root := a.root()
	if wantsJSON(args) { // for --version, whose text cobra prints
		root.Version = versionJSON(thisVersion())
	}
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	command, err := root.ExecuteContextC(ctx)
	if a.executed == nil { // the command line is wrong
		a.executed = command
	}
	if err == nil {
		err = writeFailure(out.failed())
	}
	if err != nil && wantsJSON(args) {
		a.output = "json" // cobra stops at the first error in the command line, which may precede this flag
	}
	return a.report(err)
}

// wantsJSON reports whether a command line selects JSON output, in any form of the flag.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "--":
			return false
		case "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && args[i+1] == "json" {
				return true
			}
		}
	}
	return false
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "codefleet",
		Short:         "Run agents' code in sandboxes, on one machine or many",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(c *cobra.Command, args []string) error {
			a.executed = c
			if a.output != "text" && a.output != "json" {
				return usage("-o %s: want text or json", a.output)
			}
			if !slices.Contains([]string{"auto", "always", "never"}, a.color) {
				return usage("--color %s: want auto, always or never", a.color)
			}
			isPath := a.config != "" && !strings.Contains(a.config, "://") // config.Load refuses an address
			if _, err := os.Stat(a.config); isPath && errors.Is(err, fs.ErrNotExist) {
				return usage("--config %s: no such file", a.config) // also if the command reads no settings
			}
			return checkGiven(c, args)
		},
	}
	f := root.PersistentFlags()
	f.StringVarP(&a.output, "output", "o", "text",
		"output format: text, or json (standard output then has only the documented JSON)")
	f.StringVar(&a.color, "color", "auto", "auto, always or never; auto obeys NO_COLOR and TERM=dumb")
	f.StringVar(&a.fleet, "fleet", "", "fleet.json of the fleet to use (CODEFLEET_FLEET)")
	f.StringVar(&a.config, "config", "", "configuration file (CODEFLEET_CONFIG)")
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(&cobra.Group{ID: "tasks", Title: "Tasks:"}, &cobra.Group{ID: "files", Title: "Files and state:"},
		&cobra.Group{ID: "fleet", Title: "The fleet:"})
	group := func(id string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("tasks",
		a.runCommand(), a.submitCommand(), a.statusCommand(), a.whyCommand(), a.resultCommand(), a.logsCommand(),
		a.cancelCommand(),
		a.approvalsCommand(), a.approveCommand(), a.tasksCommand(), a.deadCommand(), a.retryCommand(), a.rerunCommand(),
		a.auditCommand(), a.workflowCommand(), a.formCommand(), a.schedulesCommand(), a.triggersCommand(),
		a.webhooksCommand())
	group("files", a.artifactsCommand(), a.workspaceCommand(), a.stateCommand(), a.sessionsCommand(),
		a.skillsCommand())
	group("fleet",
		a.upCommand(), a.mcpCommand(), a.toolsCommand(), a.workersCommand(), a.poolCommand(), a.pauseCommand(),
		a.resumeCommand(), a.limitsCommand(), a.usageCommand(), a.tenantsCommand(), a.tokensCommand(),
		a.natsCommand(), a.pageCommand(), a.doctorCommand(),
		a.benchCommand(), a.configCommand(), a.guardCommand(), a.privacyCommand(), a.toolServerCommand())
	root.AddCommand(a.versionCommand())
	root.Version = versionLine(thisVersion())
	root.SetVersionTemplate("{{.Version}}\n")
	completeFlag(root, "output", "text", "json")
	completeFlag(root, "color", "auto", "always", "never")
	root.InitDefaultVersionFlag()
	strictHelp(root)
	finishCommand(root)
	return root
}

// finishCommand prepares a command and its subcommands to run. A command that does not set Args accepts no
// arguments. Errors about arguments get the command's name and usage line. Errors of commands that have run are marked,
// to tell them from cobra's own errors.
func finishCommand(c *cobra.Command) {
	c.InitDefaultHelpFlag() // before cobra looks for the command: it takes what follows an unknown flag for its value
	countFlags(c)
	addListAlias(c)
	if check := c.Args; c.HasParent() {
		if check == nil {
			check = noArgs
		}
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err != nil && c.HasSubCommands() && len(args) > 0 && check(c, args[:1]) != nil {
				return unknownCommand(c, args[0])
			}
			if err == nil {
				return checkTogether(c)
			}
			if _, explained := errors.AsType[*failure](err); explained {
				return err
			}
			return wrongArguments(c, args)
		}
	}
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			err := run(c, args)
			if err != nil {
				err = &runError{err}
			}
			return err
		}
	}
	for _, sub := range c.Commands() {
		finishCommand(sub)
	}
}

// addListAlias makes ls and list the same subcommand of c, unless c has both.
func addListAlias(c *cobra.Command) {
	var lists []*cobra.Command
	for _, sub := range c.Commands() {
		if sub.Name() == "ls" || sub.Name() == "list" {
			lists = append(lists, sub)
		}
	}
	if len(lists) == 1 {
		lists[0].Aliases = []string{map[string]string{"ls": "list", "list": "ls"}[lists[0].Name()]}
	}
}

// strictHelp makes cobra's built-in commands reject unknown arguments.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if _, _, err := root.Find(args); err != nil {
					return unknownInRoot(err)
				}
				return nil
			}
		case "completion":
			commandGroup(c)
		}
	}
}

// commandGroup adds subcommands to c, and makes c require one of them.
func commandGroup(c *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	c.Args, c.RunE = noArgs, func(c *cobra.Command, _ []string) error {
		names := mapSlice(c.Commands(), (*cobra.Command).Name)
		return usage("%s: want a subcommand: %s", c.Name(), strings.Join(names, ", ")).try(c.CommandPath() + " --help")
	}
	c.AddCommand(subcommands...)
	return c
}

// listGroup adds subcommands to c, which itself prints a list, and the subcommand ls, which does the same as c.
func listGroup(c *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	ls := &cobra.Command{Use: "ls", Short: "The same as " + c.Name(), PreRunE: c.PreRunE, RunE: c.RunE}
	ls.Flags().AddFlagSet(c.Flags())
	c.AddCommand(ls)
	c.AddCommand(subcommands...)
	return c
}

// limitFlag adds --limit, whose default is 100, to a command that lists items.
func limitFlag(c *cobra.Command, limit *int, items string) {
	c.Flags().IntVar(limit, "limit", 100, "maximum `NUMBER` of "+items+", from 1 to 1000")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *limit < 1 || *limit > 1000 {
			return usage("--limit %d: want 1 to 1000", *limit)
		}
		return nil
	}
}

// completeFlag makes the shell complete a flag with fixed values.
func completeFlag(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// do returns a RunE that calls fn with a context that the first signal cancels.
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

// useHTTP is the hint after an error that a fleet's HTTP interface would not cause.
const useHTTP = "set CODEFLEET_URL=http://HOST:PORT, the address of the fleet, and CODEFLEET_TOKEN"

// locate finds a fleet as client.Locate does. It returns a usage error for a ws:// or wss:// address, which only queues
// have.
func (a *app) locate() (client.Options, error) {
	a.noteUnusedToken()
	defer countReading()()
	o, err := client.Locate(a.fleet)
	if u, bad := url.Parse(o.URL); bad == nil && (u.Scheme == "ws" || u.Scheme == "wss") {
		return o, usage("CODEFLEET_URL is the address of the queue (%s://), but commands use the HTTP interface",
			u.Scheme).try(useHTTP)
	}
	return o, err
}

// noteUnusedToken prints a note, once, if CODEFLEET_TOKEN is set without the address that it is for.
func (a *app) noteUnusedToken() {
	if a.lookup("CODEFLEET_TOKEN") != "" && a.lookup("CODEFLEET_URL") == "" {
		a.notedToken.Do(func() {
			fmt.Fprintln(a.stderr, "note: CODEFLEET_TOKEN is not used, because CODEFLEET_URL is not set")
		})
	}
}

// connect returns a client of the fleet that client.Locate finds. The client retries a request for retryFor; zero
// selects the client's default, a negative duration disables retries.
func (a *app) connect(ctx context.Context, retryFor time.Duration) (*client.Client, error) {
	options, err := a.locate()
	if err != nil {
		return nil, noFleet(err)
	}
	options.Source, options.RetryFor = "codefleet/cli", retryFor
	c, err := client.New(ctx, options)
	if err != nil {
		return nil, noFleet(err)
	}
	return c, nil
}

// namesFleet reports whether a flag or the environment names the fleet to use.
func (a *app) namesFleet() bool {
	return a.fleet != "" || a.lookup("CODEFLEET_FLEET") != "" || a.lookup("CODEFLEET_URL") != ""
}

// withFleet returns a RunE that calls fn with a client of the fleet.
func (a *app) withFleet(
	fn func(ctx context.Context, c *client.Client, args []string) error,
) func(*cobra.Command, []string) error {
	return a.do(func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx, retryTime)
		if err != nil {
			return err
		}
		defer c.Close()
		return markCall(fn(ctx, c, args))
	})
}

// loadSilently reads the configuration, with flags as the topmost layer.
func (a *app) loadSilently(flags ...config.Flag) (*config.Config, error) {
	defer countReading()()
	return config.Load(config.Source{File: a.config, Env: a.env, Flags: flags})
}

// load is loadSilently, and prints the configuration's warnings, unless with -o json.
func (a *app) load(flags ...config.Flag) (*config.Config, error) {
	c, err := a.loadSilently(flags...)
	if err != nil {
		return nil, err
	}
	for _, w := range c.Warnings {
		a.printNote("warning: " + w)
	}
	return c, nil
}

// print prints v as JSON with -o json, and calls write otherwise.
func (a *app) print(v any, write func(w io.Writer)) error {
	return writeFailure(a.write(v, write))
}

// writeFailure returns the failure of a command whose output could not be written because of err, or nil for nil.
func writeFailure(err error) error {
	if err == nil {
		return nil
	}
	return &failure{code: errcode.ExitFailed, message: "write the output", err: err}
}

// checkedWriter remembers its first error, because most commands ignore the errors of single writes.
type checkedWriter struct {
	io.Writer
	mu  sync.Mutex
	err error
}

func (w *checkedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	return n, err
}

func (w *checkedWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// write does what print does, but returns the error as it is.
func (a *app) write(v any, write func(w io.Writer)) error {
	if a.output == "json" {
		return a.encodeJSON(v, true)
	}
	if a.hasColours(a.stdout) {
		var table bytes.Buffer
		err := align(&table, write)
		a.paintTable(a.stdout, table.String())
		return err
	}
	return align(a.stdout, write)
}

// align calls write, and copies its output to w with the table columns aligned.
func align(w io.Writer, write func(w io.Writer)) error {
	aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	write(aligned)
	return aligned.Flush()
}

// maxIndented is how many bytes of indented JSON are always printed.
const maxIndented = 1 << 20

// indented returns data, which must be valid JSON, with indentation unless the result would be too long.
func indented(data []byte) []byte { return text.IndentModerately(data, "  ", maxIndented) }

// encodeJSON prints v as JSON, followed by a newline.
func (a *app) encodeJSON(v any, indent bool) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	data := text.UnescapeHTML(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	if indent {
		data = indented(data)
	}
	out := string(data)
	if isTerminal(a.stdout) {
		out = text.TerminalJSON(out)
	}
	_, err := fmt.Fprintln(a.stdout, out)
	return err
}

// list prints items as JSON, or as a table with one row per item. Tabs separate the columns of the header.
func list[T any](a *app, items []T, header string, cells func(T) []any) error {
	return a.print(orEmpty(items), func(w io.Writer) {
		fmt.Fprintln(w, header)
		for _, item := range items {
			row(w, cells(item)...)
		}
	})
}

// listOr is like list, but in text mode it prints a sentence, the argument none, instead of a table without rows. The
// commands in it get the flags of the command line.
func listOr[T any](a *app, items []T, none, header string, cells func(T) []any) error {
	if len(items) == 0 && a.output == "text" {
		_, err := fmt.Fprintln(a.stdout, a.withFlags(none))
		return err
	}
	return list(a, items, header, cells)
}

// row writes one table row. Cells may hold untrusted text.
func row(w io.Writer, cells ...any) {
	columns := mapSlice(cells, func(c any) string { return printable(fmt.Sprint(c)) })
	fmt.Fprintln(w, strings.Join(columns, "\t"))
}

// printLines prints each of the untrusted texts on its own line, preceded by label.
func printLines(w io.Writer, label string, texts []string) {
	for _, s := range texts {
		fmt.Fprintln(w, label, printable(s))
	}
}

// mapSlice returns the results of fn for the items.
func mapSlice[T, R any](items []T, fn func(T) R) []R {
	results := make([]R, len(items))
	for i, item := range items {
		results[i] = fn(item)
	}
	return results
}

// printable returns untrusted text as one line without control characters.
func printable(s string) string {
	return text.Printable(strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace(s))
}

func isTerminal(v any) bool {
	f, ok := v.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
