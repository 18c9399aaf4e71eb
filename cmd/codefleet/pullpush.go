package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/dirsync"
	"github.com/codefleet/codefleet/internal/errcode"
)

func (a *app) wsPullCommand() *cobra.Command {
	var keepBoth, theirs bool
	c := a.wsVerb(&cobra.Command{
		Use:   "pull DIR",
		Short: "Copy changes of the workspace into a local directory",
		Long: "Copy what changed in the workspace since the last pull or push into a local directory.\n" +
			"Your changes stay. A file that was changed on both sides is a conflict, and nothing is\n" +
			"written until you choose a side. The state of the last synchronisation is kept\n" +
			"in its file " + dirsync.BaseFileName + ".",
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		policy := client.Refuse
		switch {
		case keepBoth:
			policy = client.KeepBoth
		case theirs:
			policy = client.Theirs
		}
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return usage("%v", err)
		}
		line := a.progress()
		line.show("pull " + ws.Name())
		r, err := ws.Pull(ctx, args[0], policy)
		line.clear()
		if err != nil {
			return conflictHere(err, "codefleet workspace pull --keep-both "+args[0]+"  (keeps yours, and the "+
				"others as NAME.conflict-gN), or --theirs")
		}
		return a.showReport(ws, r, "wrote", args[0])
	})
	c.Flags().BoolVar(&keepBoth, "keep-both", false,
		"on conflicts, keep your file, and the other as NAME.conflict-gN")
	c.Flags().BoolVar(&theirs, "theirs", false, "on conflicts, replace your file")
	c.MarkFlagsMutuallyExclusive("keep-both", "theirs")
	c.ValidArgsFunction = onlyDirs
	return c
}

func (a *app) wsPushCommand() *cobra.Command {
	var ours bool
	var message string
	c := a.wsVerb(&cobra.Command{
		Use:   "push DIR",
		Short: "Commit changes of a local directory to the workspace",
		Long: "Commit what changed in a local directory since the last pull or push to the workspace,\n" +
			"as one commit. A file that was changed on both sides is a conflict, and nothing is\n" +
			"committed. __pycache__, .venv, node_modules, .git and what the directory's\n" +
			".workspaceignore names are left out.",
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		policy := client.Refuse
		if ours {
			policy = client.Ours
		}
		line := a.progress()
		line.show("push " + ws.Name())
		r, err := ws.Push(ctx, args[0], message, policy)
		line.clear()
		if err != nil {
			return conflictHere(err, "codefleet workspace pull --keep-both "+args[0]+", compare both, and push "+
				"again; or push --ours")
		}
		return a.showReport(ws, r, "sent", args[0])
	})
	c.Flags().StringVarP(&message, "message", "m", "push", "`MESSAGE` of the commit")
	c.Flags().BoolVar(&ours, "ours", false, "on conflicts, replace the workspace's file")
	c.ValidArgsFunction = onlyDirs
	return c
}

func onlyDirs(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// conflictHere adds a hint to a conflict, and tells errors of this host from the fleet's.
func conflictHere(err error, hint string) error {
	if e, ok := errors.AsType[*client.ConflictError](err); ok {
		return &failure{
			code:    errcode.ExitRefused,
			message: few(e.Paths, len(e.Paths)) + ": changed both here and in the workspace; nothing was changed",
			hint:    hint,
		}
	}
	if errors.Is(err, dirsync.ErrOtherWorkspace) {
		return &failure{
			code: errcode.ExitUsage, message: err.Error(),
			hint: "use another directory, or remove its " + dirsync.BaseFileName,
		}
	}
	if _, here := errors.AsType[*os.PathError](err); here {
		return usage("%v", err)
	}
	return err
}

// report is the JSON output of pull and push.
type report struct {
	Workspace  string   `json:"workspace"`
	Generation int64    `json:"generation"`
	Written    []string `json:"written"`
	Removed    []string `json:"removed"`
	Conflicts  []string `json:"conflicts"`
	Skipped    []string `json:"skipped"`
}

func (a *app) showReport(ws *client.Workspace, r client.SyncReport, verb, dir string) error {
	for _, p := range r.Conflicts {
		fmt.Fprintf(a.stderr, "conflict: %s was changed on both sides; both versions are kept\n", printable(p))
	}
	for _, p := range r.Skipped {
		fmt.Fprintf(a.stderr, "skipped: %q is a path that the other side cannot have\n", p)
	}
	out := report{
		ws.Name(), r.Generation, orEmpty(r.Written), orEmpty(r.Removed), orEmpty(r.Conflicts), orEmpty(r.Skipped),
	}
	return a.print(out, func(w io.Writer) {
		if len(r.Written)+len(r.Removed) == 0 {
			fmt.Fprintf(w, "nothing to do: %s and generation %d of %s are equal\n", dir, r.Generation, ws.Name())
			return
		}
		fmt.Fprintf(w, "%s %d, removed %d: %s and generation %d of %s are equal\n", verb, len(r.Written),
			len(r.Removed),
			dir, r.Generation, ws.Name())
	})
}
