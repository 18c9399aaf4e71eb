package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/dirsync"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) wsPullCommand() *cobra.Command {
	var keepBoth, theirs bool
	c := a.wsCommand(&cobra.Command{
		Use:   "pull DIR",
		Short: "Copy changes of the workspace into a local directory",
		Long: "Copy what changed in the workspace since the last pull or push into a local directory.\n" +
			"Local changes stay. If a file has changed on both sides, the command fails and writes\n" +
			"nothing, unless a flag resolves such conflicts. The state of the last sync is kept in the\n" +
			"directory's file " + dirsync.BaseFileName + ".",
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		policy := client.Refuse
		switch {
		case keepBoth:
			policy = client.KeepBoth
		case theirs:
			policy = client.Theirs
		}
		if err := errors.Join(requireDir(args[0]), checkPull(ctx, ws, args[0])); err != nil {
			return err
		}
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return explainFileError(err)
		}
		r, err := a.transfer("pull", ws, func() (client.SyncReport, error) {
			return ws.Pull(ctx, args[0], policy)
		})
		if err != nil && len(r.Written)+len(r.Removed) > 0 {
			return partialPull(err, r)
		}
		if err != nil {
			return explainSyncError(err, keepBothCommand(args[0])+"  (keeps your files, and "+
				"the workspace's as NAME.conflict-gN), or --theirs")
		}
		if len(r.Written) == 0 {
			if info, err := ws.Info(ctx); err == nil && info.Deleted {
				fmt.Fprintf(a.stderr, "note: the workspace %s was deleted\n", ws.Name())
			}
		}
		return a.showSync(ws, r, "wrote", args[0])
	})
	c.Flags().BoolVar(&keepBoth, "keep-both", false,
		"on conflicts, keep your file, and write the workspace's as NAME.conflict-gN")
	c.Flags().BoolVar(&theirs, "theirs", false, "on conflicts, replace your file with the workspace's")
	c.MarkFlagsMutuallyExclusive("keep-both", "theirs")
	c.ValidArgsFunction = completeDirs
	return c
}

// requireDir returns an error if dir exists and is not a directory.
func requireDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return usage("%s is not a directory", dir).try("the directory that contains it")
	}
	return nil
}

// checkPull returns the error of rejectEmpty if dir has never been synced.
func checkPull(ctx context.Context, ws *client.Workspace, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, dirsync.BaseFileName)); err == nil {
		return nil
	}
	return rejectEmpty(ctx, ws)
}

// rejectEmpty returns an error if the workspace has no commits, because its name is probably mistyped, or if it was
// deleted. The default workspace is exempt.
func rejectEmpty(ctx context.Context, ws *client.Workspace) error {
	info, err := ws.Info(ctx)
	switch {
	case err != nil || ws.Name() == defaultWorkspace:
		return err
	case info.Deleted:
		return usage("the workspace %s was deleted", ws.Name()).try("codefleet workspace list")
	case info.Generation == 0:
		return usage("the workspace %s has no commits", ws.Name()).try("codefleet workspace list")
	}
	return nil
}

const defaultWorkspace = "main"

func (a *app) wsPushCommand() *cobra.Command {
	var ours bool
	var message string
	c := a.wsCommand(&cobra.Command{
		Use:   "push DIR",
		Short: "Commit changes of a local directory to the workspace",
		Long: "Commit what changed in a local directory since the last pull or push to the workspace,\n" +
			"as one commit. If a file has changed on both sides, the command fails and commits\n" +
			"nothing, unless a flag resolves such conflicts. It skips __pycache__, .venv, node_modules,\n" +
			".git and what the directory's .workspaceignore lists.",
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		policy := client.Refuse
		if ours {
			policy = client.Ours
		}
		if _, err := os.Stat(args[0]); errors.Is(err, fs.ErrNotExist) {
			return usage("%s does not exist", args[0]).try("the directory whose files to send")
		}
		if err := requireDir(args[0]); err != nil {
			return err
		}
		r, err := a.transfer("push", ws, func() (client.SyncReport, error) {
			return ws.Push(ctx, args[0], message, policy)
		})
		if err == nil && r.Generation == 0 {
			err = rejectEmpty(ctx, ws)
		}
		if e, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, fs.ErrPermission) {
			return usage("%s: permission denied", filepath.Join(args[0], e.Path)).
				try("make it readable, or list it in the directory's .workspaceignore")
		}
		if err != nil {
			return explainSyncError(err,
				keepBothCommand(args[0])+", compare both files, and push again; or push --ours")
		}
		return a.showSync(ws, r, "sent", args[0])
	})
	c.Flags().StringVarP(&message, "message", "m", "push", "`MESSAGE` of the commit")
	c.Flags().BoolVar(&ours, "ours", false, "on conflicts, replace the workspace's file with yours")
	c.ValidArgsFunction = completeDirs
	return c
}

// transfer calls fn, which pulls or pushes ws, and shows its progress.
func (a *app) transfer(
	verb string, ws *client.Workspace, fn func() (client.SyncReport, error),
) (client.SyncReport, error) {
	line, name := a.progress(), verb+" "+ws.Name()
	line.show(name)
	defer line.clear()
	ws.Progress = line.transfer(name)
	return fn()
}

// partialPull returns the error of a pull that failed after it had changed some paths.
func partialPull(err error, r client.SyncReport) error {
	return &failure{
		code: explain(markCall(explainSyncError(err, ""))).code, err: err,
		message: fmt.Sprintf("the pull stopped after it had written %d and removed %s",
			len(r.Written), text.Count(len(r.Removed), "path")),
		hint: "run the same command again to continue",
	}
}

func completeDirs(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

func keepBothCommand(dir string) string {
	return "codefleet workspace pull --keep-both " + shellescape.Quote(dir)
}

// explainSyncError adds the hint to a conflict, and explains an error about the local directory.
func explainSyncError(err error, hint string) error {
	if e, ok := errors.AsType[*client.ConflictError](err); ok {
		return &failure{
			code:      errcode.ExitRefused,
			message:   "changed both locally and in the workspace: " + summarizePaths(e.Paths, len(e.Paths)),
			hint:      hint,
			errorCode: errcode.Conflict,
		}
	}
	if errors.Is(err, dirsync.ErrOtherWorkspace) {
		return usage("%v", err).try("use another directory, or remove its " + dirsync.BaseFileName)
	}
	if errors.Is(err, dirsync.ErrDataDir) {
		return usage("%v", err)
	}
	if errors.Is(err, dirsync.ErrOlder) {
		return &failure{code: errcode.ExitRefused, message: err.Error()}
	}
	return explainFileError(err)
}

// syncOutput is what `workspace pull -o json` and `workspace push -o json` print.
type syncOutput struct {
	Workspace  string   `json:"workspace"`
	Generation int64    `json:"generation"`
	Written    []string `json:"written"`
	Removed    []string `json:"removed"`
	Conflicts  []string `json:"conflicts"`
	Skipped    []string `json:"skipped"`
	Different  []string `json:"different"` // paths at which the directory and the workspace still differ
}

func (a *app) showSync(ws *client.Workspace, r client.SyncReport, verb, dir string) error {
	for _, p := range r.Conflicts {
		fmt.Fprintf(a.stderr, "conflict: %s has changed on both sides; both versions are kept\n", printable(p))
	}
	for _, p := range r.Skipped {
		fmt.Fprintf(a.stderr, "skipped: %q: its name is not allowed there or differs from another one by case only, "+
			"it is a link that points outside, it is neither a file nor a directory, "+
			"or it is the data directory of a fleet\n", p)
	}
	out := syncOutput{
		ws.Name(), r.Generation, orEmpty(r.Written), orEmpty(r.Removed), orEmpty(r.Conflicts), orEmpty(r.Skipped),
		orEmpty(r.Different),
	}
	return a.print(out, func(w io.Writer) {
		summary := "nothing to do"
		if len(r.Written)+len(r.Removed) > 0 {
			summary = fmt.Sprintf("%s %d, removed %d", verb, len(r.Written), len(r.Removed))
		}
		fmt.Fprintf(w, "%s: %s and generation %d of %s %s\n", summary, dir, r.Generation, ws.Name(),
			a.afterSync(r, verb, dir))
	})
}

// afterSync says whether both sides are equal after a pull or a push, and if not, which command copies the paths that
// differ in the other direction.
func (a *app) afterSync(r client.SyncReport, verb, dir string) string {
	other := "push"
	if verb == "sent" {
		other = "pull"
	}
	switch n := len(r.Different); {
	case n > 0:
		return "differ at " + text.Count(n, "path") + ": " +
			a.withFlags("codefleet workspace "+other+" "+shellescape.Quote(dir))
	case len(r.Skipped) > 0:
		return "are equal, apart from what was skipped"
	}
	return "are equal"
}
