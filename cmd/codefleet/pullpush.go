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
		Short: "Bring what changed in the workspace into a directory here",
		Long: "Bring what changed in the workspace, since directory and workspace last met, into a directory here. What you\n" +
			"changed stays; a file that was changed on both sides is a conflict, and nothing is done until you say which\n" +
			"is to be kept. The directory remembers what it met in " + dirsync.MemoryFile + ".",
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
			return conflictHere(err, "codefleet workspace pull --keep-both "+args[0]+"  (yours stay, the others come as NAME.conflict-gN), or --theirs")
		}
		return a.showReport(ws, r, "wrote", args[0])
	})
	c.Flags().BoolVar(&keepBoth, "keep-both", false, "conflicts: yours keeps the name, the other is NAME.conflict-gN beside it")
	c.Flags().BoolVar(&theirs, "theirs", false, "conflicts: what the workspace has replaces yours")
	c.MarkFlagsMutuallyExclusive("keep-both", "theirs")
	c.ValidArgsFunction = onlyDirs
	return c
}

func (a *app) wsPushCommand() *cobra.Command {
	var ours bool
	var message string
	c := a.wsVerb(&cobra.Command{
		Use:   "push DIR",
		Short: "Make what changed in a directory here a commit of the workspace",
		Long: "Make what changed in a directory here, since directory and workspace last met, one commit of the workspace. A\n" +
			"file that was changed on both sides is a conflict, and nothing is done. Left out are __pycache__, .venv,\n" +
			"node_modules, .git, and what the directory's .workspaceignore names.",
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
			return conflictHere(err, "codefleet workspace pull --keep-both "+args[0]+", look at both, and push again; or push --ours")
		}
		return a.showReport(ws, r, "sent", args[0])
	})
	c.Flags().StringVarP(&message, "message", "m", "push", "what the log says")
	c.Flags().BoolVar(&ours, "ours", false, "conflicts: what is here replaces what the workspace has")
	c.ValidArgsFunction = onlyDirs
	return c
}

func onlyDirs(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// conflictHere says what to type about a conflict, and tells errors of this host from the fleet's.
func conflictHere(err error, hint string) error {
	if e, ok := errors.AsType[*client.ConflictError](err); ok {
		return &failure{code: errcode.ExitRefused, message: few(e.Paths, len(e.Paths)) + ": changed both here and in the workspace; nothing was done", hint: hint}
	}
	if errors.Is(err, dirsync.ErrOther) {
		return &failure{code: errcode.ExitUsage, message: err.Error(), hint: "use another directory, or remove its " + dirsync.MemoryFile}
	}
	if _, here := errors.AsType[*os.PathError](err); here {
		return usage("%v", err)
	}
	return err
}

// report is what pull and push print as JSON.
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
		fmt.Fprintf(a.stderr, "conflict: %s was changed on both sides; both are kept\n", visible(p))
	}
	for _, p := range r.Skipped {
		fmt.Fprintf(a.stderr, "skipped: %q cannot be on both sides\n", p)
	}
	out := report{ws.Name(), r.Generation, orEmpty(r.Written), orEmpty(r.Removed), orEmpty(r.Conflicts), orEmpty(r.Skipped)}
	return a.print(out, func(w io.Writer) {
		if len(r.Written)+len(r.Removed) == 0 {
			fmt.Fprintf(w, "nothing to do: %s and generation %d of %s have met\n", dir, r.Generation, ws.Name())
			return
		}
		fmt.Fprintf(w, "%s %d, removed %d: %s and generation %d of %s have met\n", verb, len(r.Written), len(r.Removed), dir, r.Generation, ws.Name())
	})
}
