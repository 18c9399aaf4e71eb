package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
)

func (a *app) workspaceCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "workspace",
		Short: "The files that tasks work on: history, and exchange with directories here",
		Long: "The files that tasks work on. Each task that changes a file makes a new generation of its workspace, and so\n" +
			"do changes from here. A version is named by its generation, or by a pin.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.wsListCommand(), a.wsLogCommand(), a.wsDiffCommand(), a.wsRestoreCommand(), a.wsForkCommand(), a.wsLsCommand(),
		a.wsCatCommand(), a.wsPullCommand(), a.wsPushCommand(), a.wsCheckCommand(), a.wsRmCommand(), a.wsPinCommand())
	return c
}

// wsVerb makes a verb of one workspace, with its flag.
func (a *app) wsVerb(c *cobra.Command, fn func(ctx context.Context, w *client.Workspace, args []string) error) *cobra.Command {
	var name string
	c.RunE = a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
		return explainConflict(fn(ctx, c.Workspace(name), args))
	})
	a.workspaceFlag(c, &name)
	return c
}

func (a *app) workspaceFlag(c *cobra.Command, name *string) {
	c.Flags().StringVarP(name, "workspace", "w", "main", "the `NAME` of the workspace")
	a.completeWorkspaces(c)
}

// completeWorkspaces completes --workspace.
func (a *app) completeWorkspaces(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("workspace", a.complete(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
		list, _ := c.Workspaces(ctx)
		var names []cobra.Completion
		for _, w := range list {
			names = append(names, cobra.CompletionWithDesc(w.Name, fmt.Sprintf("generation %d, %d files", w.Generation, w.Files)))
		}
		return names
	}))
}

// complete asks the fleet, for a moment, what could come next.
func (a *app) complete(ask func(ctx context.Context, c *client.Client, args []string) []cobra.Completion) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), time.Second)
		defer cancel()
		fleet, err := a.connect(ctx, client.Options{RetryFor: -1})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer fleet.Close()
		list := ask(ctx, fleet, args)
		list = slices.DeleteFunc(list, func(c cobra.Completion) bool { return !strings.HasPrefix(c, typed) })
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// workspaceOf is the workspace that the flags of a command name, for completion.
func workspaceOf(cmd *cobra.Command, c *client.Client) *client.Workspace {
	name, _ := cmd.Flags().GetString("workspace")
	return c.Workspace(name)
}

// completeVersions completes generations and pins, for at most so many words.
func (a *app) completeVersions(cmd *cobra.Command, words int) {
	cmd.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		if len(args) >= words {
			return nil
		}
		const shown = 30
		w := workspaceOf(cmd, c)
		var list []cobra.Completion
		pins, _ := w.Pins(ctx)
		for _, p := range pins {
			list = append(list, cobra.CompletionWithDesc(p.Name, fmt.Sprintf("generation %d", p.Generation)))
		}
		log, _ := w.Log(ctx, shown)
		for _, v := range log {
			list = append(list, cobra.CompletionWithDesc(strconv.FormatInt(v.Generation, 10), short(time.Since(v.Time))+" ago, "+whose(v)))
		}
		return list
	})
}

// completeFiles completes paths of the newest version.
func (a *app) completeFiles(cmd *cobra.Command) {
	cmd.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
		const shown = 500
		files, _, _ := workspaceOf(cmd, c).Files(ctx, "", "")
		var list []cobra.Completion
		for _, f := range files[:min(len(files), shown)] {
			list = append(list, f.Path)
		}
		return list
	})
}

// whose says what made a commit.
func whose(c client.Commit) string {
	if c.TaskID != "" {
		return "task " + c.TaskID
	}
	return c.Message
}

func (a *app) wsListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the workspaces",
		Args:  noArgs,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Workspaces(ctx)
			if err != nil {
				return err
			}
			return a.print(orEmpty(list), func(w io.Writer) {
				row(w, "WORKSPACE", "GENERATION", "CHANGED", "FILES", "BYTES")
				for _, x := range list {
					row(w, x.Name, x.Generation, short(time.Since(x.Time))+" ago", x.Files, x.Bytes)
				}
			})
		}),
	}
}

func (a *app) wsLogCommand() *cobra.Command {
	var limit int
	c := a.wsVerb(&cobra.Command{
		Use:   "log",
		Short: "List the commits of a workspace, the newest first",
		Args:  noArgs,
	}, func(ctx context.Context, ws *client.Workspace, _ []string) error {
		if limit < 1 {
			return usage("--limit %d: at least 1", limit)
		}
		log, err := ws.Log(ctx, limit)
		if err != nil {
			return err
		}
		return a.print(orEmpty(log), func(w io.Writer) {
			row(w, "GENERATION", "WHEN", "BY", "CHANGED")
			for _, c := range log {
				row(w, c.Generation, short(time.Since(c.Time))+" ago", whose(c), few(c.Changed, c.Total))
			}
		})
	})
	c.Flags().IntVar(&limit, "limit", 100, "at most so many")
	return c
}

// few is a list of paths that fits in a line.
func few(paths []string, total int) string {
	const shown = 3
	text := strings.Join(paths[:min(len(paths), shown)], ", ")
	if more := total - min(len(paths), shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (a *app) wsDiffCommand() *cobra.Command {
	c := a.wsVerb(&cobra.Command{
		Use:     "diff A [B]",
		Short:   "Show which paths differ between two versions; without B, the newest",
		Example: "  codefleet workspace diff 3 7\n  codefleet workspace diff before-upgrade",
		Args:    cobra.RangeArgs(1, 2),
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		to := ""
		if len(args) > 1 {
			to = args[1]
		}
		list, err := ws.Diff(ctx, args[0], to)
		if err != nil {
			return err
		}
		return a.print(orEmpty(list), func(w io.Writer) {
			for _, d := range list {
				row(w, d.Op, d.Path, d.Bytes)
			}
		})
	})
	a.completeVersions(c, 2)
	return c
}

func (a *app) wsRestoreCommand() *cobra.Command {
	var message string
	c := a.wsVerb(&cobra.Command{
		Use:   "restore VERSION",
		Short: "Make an older version the newest again; what came between stays in the history",
		Args:  cobra.ExactArgs(1),
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		done, err := ws.Restore(ctx, args[0], message)
		if err != nil {
			return err
		}
		return a.showCommit(ws, done)
	})
	c.Flags().StringVarP(&message, "message", "m", "", "what the log says")
	a.completeVersions(c, 1)
	return c
}

// showCommit says what a change from here did.
func (a *app) showCommit(ws *client.Workspace, c client.Commit) error {
	return a.print(c, func(w io.Writer) {
		if c.NoChange {
			fmt.Fprintf(w, "nothing to change: %s is at generation %d\n", ws.Name(), c.Generation)
			return
		}
		fmt.Fprintf(w, "generation %d of %s: %s\n", c.Generation, ws.Name(), few(c.Changed, c.Total))
	})
}

func (a *app) wsForkCommand() *cobra.Command {
	var to string
	c := a.wsVerb(&cobra.Command{
		Use:   "fork [VERSION] --to NAME",
		Short: "Begin another workspace with a version of this one; nothing is copied",
		Args:  atMostOne,
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		if to == "" {
			return &failure{code: exitUsage, message: "fork: --to is missing, the name of the new workspace", hint: "codefleet workspace fork --to NAME"}
		}
		done, err := ws.Fork(ctx, first(args), to)
		if err != nil {
			return err
		}
		return a.print(done, func(w io.Writer) {
			fmt.Fprintf(w, "%s begins with %d paths; run tasks there with --workspace %s\n", to, done.Total, to)
		})
	})
	c.Flags().StringVar(&to, "to", "", "`NAME` of the new workspace")
	a.completeVersions(c, 1)
	return c
}

func (a *app) wsLsCommand() *cobra.Command {
	var version string
	var all bool
	c := a.wsVerb(&cobra.Command{
		Use:   "ls [DIR]",
		Short: "List the files of a version",
		Args:  atMostOne,
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		dir := strings.Trim(first(args), "/")
		files, _, err := ws.Files(ctx, version, dir)
		if err != nil {
			return err
		}
		if !all {
			files = slices.DeleteFunc(files, func(f client.WorkspaceFile) bool {
				return path.Dir(f.Path) != path.Clean(dir)
			})
		}
		if len(files) == 0 && a.output == "text" {
			fmt.Fprintln(a.stderr, "note: nothing there (codefleet workspace list)")
		}
		return a.print(orEmpty(files), func(w io.Writer) {
			for _, f := range files {
				at := "-" // of a directory or link
				if f.Kind == "file" {
					at = f.Time.Local().Format(time.DateTime)
				}
				row(w, modeText(f), f.Bytes, at, nameText(f))
			}
		})
	})
	c.Flags().StringVarP(&version, "generation", "g", "", "a `VERSION` other than the newest")
	c.Flags().BoolVarP(&all, "recursive", "r", false, "with all directories below")
	a.completeFiles(c)
	return c
}

func modeText(f client.WorkspaceFile) string {
	kinds := map[string]string{"dir": "d", "link": "l"}
	text := []byte("rwxrwxrwx")
	for i := range text {
		if f.Mode&(1<<(8-i)) == 0 {
			text[i] = '-'
		}
	}
	kind := kinds[f.Kind]
	if kind == "" {
		kind = "-"
	}
	return kind + string(text)
}

// nameText is a path as a terminal may show it: a task may have put anything into a name.
func nameText(f client.WorkspaceFile) string {
	name := f.Path
	switch f.Kind {
	case "dir":
		name += "/"
	case "link":
		name += " -> " + f.Target
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

func (a *app) wsCatCommand() *cobra.Command {
	var version string
	c := a.wsVerb(&cobra.Command{
		Use:   "cat FILE…",
		Short: "Print files of a version",
		Args:  cobra.MinimumNArgs(1),
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		for _, file := range args {
			if err := a.cat(ctx, ws, version, file); err != nil {
				return err
			}
		}
		return nil
	})
	c.Flags().StringVarP(&version, "generation", "g", "", "a `VERSION` other than the newest")
	a.completeFiles(c)
	return c
}

func (a *app) cat(ctx context.Context, ws *client.Workspace, version, file string) error {
	r, err := ws.Open(ctx, version, file, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(a.stdout, r)
	return err
}

func (a *app) wsCheckCommand() *cobra.Command {
	var read string
	c := a.wsVerb(&cobra.Command{
		Use:   "check",
		Short: "Verify that every version that is kept can be read",
		Example: "  codefleet workspace check --read-data          all content, too\n" +
			"  codefleet workspace check --read-data=2/7      the second seventh of it",
		Args: noArgs,
	}, func(ctx context.Context, ws *client.Workspace, _ []string) error {
		o, err := readData(read)
		if err != nil {
			return err
		}
		line := a.progress()
		line.show("check " + ws.Name())
		found, err := ws.Check(ctx, o)
		line.clear()
		if err != nil {
			return err
		}
		err = a.print(found, func(w io.Writer) {
			for _, p := range found.Problems {
				fmt.Fprintln(w, "damaged:", p)
			}
			fmt.Fprintf(w, "%d versions, %d packs, %d of them read: %d problems\n", found.Versions, found.Packs, found.Read, len(found.Problems))
		})
		if err == nil && len(found.Problems) > 0 {
			return &failure{code: exitFailed, message: "the workspace is damaged", hint: "codefleet workspace log; codefleet workspace restore a version that is whole"}
		}
		return err
	})
	c.Flags().StringVar(&read, "read-data", "", "read content too: all of it, or part `N/T`")
	c.Flags().Lookup("read-data").NoOptDefVal = "1/1"
	return c
}

// readData reads --read-data.
func readData(text string) (client.CheckOptions, error) {
	if text == "" {
		return client.CheckOptions{}, nil
	}
	n, t, ok := strings.Cut(text, "/")
	part, err1 := strconv.Atoi(n)
	of, err2 := strconv.Atoi(t)
	if !ok || errors.Join(err1, err2) != nil || part < 1 || of < part {
		return client.CheckOptions{}, usage("--read-data=%s: want N/T, as in 2/7 for the second seventh", text)
	}
	return client.CheckOptions{ReadData: true, Part: part, Of: of}, nil
}

func (a *app) wsRmCommand() *cobra.Command {
	var all, yes bool
	c := a.wsVerb(&cobra.Command{
		Use:   "rm PATH… | --all",
		Short: "Remove files, or with --all the whole workspace with its history",
		Long: "Remove files or directories from the newest version; older versions keep them. With --all the whole workspace\n" +
			"goes, with its history: that cannot be undone, and needs --yes.",
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		switch {
		case all == (len(args) > 0):
			return &failure{code: exitUsage, message: "rm: either paths, or --all for the whole workspace", hint: "codefleet workspace rm --help"}
		case all && !yes:
			return &failure{
				code: exitUsage, message: "the workspace " + ws.Name() + " would be gone with its history",
				hint: "codefleet workspace rm --workspace " + ws.Name() + " --all --yes",
			}
		case all:
			if err := ws.Delete(ctx); err != nil {
				return err
			}
			return a.print(struct {
				Removed string `json:"removed"`
			}{ws.Name()}, func(w io.Writer) { fmt.Fprintln(w, "removed the workspace", ws.Name()) })
		}
		var done client.Commit
		for _, name := range args {
			c, err := ws.Remove(ctx, name)
			if err != nil {
				return err
			}
			c.Changed, c.Total = append(done.Changed, c.Changed...), done.Total+c.Total
			done = c
		}
		return a.showCommit(ws, done)
	})
	c.Flags().BoolVar(&all, "all", false, "the whole workspace")
	c.Flags().BoolVar(&yes, "yes", false, "with --all: do it")
	a.completeFiles(c)
	return c
}

func (a *app) wsPinCommand() *cobra.Command {
	var remove bool
	c := a.wsVerb(&cobra.Command{
		Use:   "pin [NAME [VERSION]]",
		Short: "Keep a version for good under a name; without a name, list the pins",
		Example: "  codefleet workspace pin before-upgrade         the newest\n" +
			"  codefleet workspace pin release 12\n  codefleet workspace pin --remove release",
		Args: cobra.MaximumNArgs(2),
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		switch {
		case len(args) == 0 && remove:
			return usage("--remove: which pin?")
		case remove:
			return a.unpin(ctx, ws, args[0])
		case len(args) == 0:
			pins, err := ws.Pins(ctx)
			if err != nil {
				return err
			}
			return a.print(orEmpty(pins), func(w io.Writer) {
				row(w, "PIN", "GENERATION")
				for _, p := range pins {
					row(w, p.Name, p.Generation)
				}
			})
		}
		p, err := ws.Pin(ctx, args[0], first(args[1:]))
		if err != nil {
			return err
		}
		return a.print(p, func(w io.Writer) { fmt.Fprintf(w, "generation %d is kept as %s\n", p.Generation, p.Name) })
	})
	c.Flags().BoolVar(&remove, "remove", false, "let go of the pin")
	return c
}

// unpin lets go of a pin that is there: letting go of another is a slip of the keys.
func (a *app) unpin(ctx context.Context, ws *client.Workspace, name string) error {
	pins, err := ws.Pins(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(pins, func(p client.Pin) bool { return p.Name == name })
	if i < 0 {
		return &failure{code: exitUsage, message: fmt.Sprintf("pin: %s has no pin %q", ws.Name(), name), hint: "codefleet workspace pin --workspace " + ws.Name()}
	}
	if err := ws.Unpin(ctx, name); err != nil {
		return err
	}
	return a.print(pins[i], func(w io.Writer) { fmt.Fprintf(w, "%s no longer keeps generation %d\n", name, pins[i].Generation) })
}

// refusedAs returns a refusal with the given HTTP status.
func refusedAs(err error, status int) (*client.APIError, bool) {
	e, ok := errors.AsType[*client.APIError](err)
	return e, ok && e.Status == status
}

// explainConflict says which files a conflict is about, and what to type.
func explainConflict(err error) error {
	e, ok := refusedAs(err, http.StatusConflict)
	if !ok || e.Code != "conflict" {
		return err
	}
	return &failure{code: exitRefused, message: "changed by others meanwhile: " + few(e.Paths, len(e.Paths)), hint: "codefleet workspace log, and then the same again"}
}
