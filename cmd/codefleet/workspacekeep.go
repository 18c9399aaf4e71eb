package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

func (a *app) wsRmCommand() *cobra.Command {
	var all, yes bool
	c := a.wsCommand(&cobra.Command{
		Use:   "rm PATH… | --all",
		Args:  cobra.ArbitraryArgs,
		Short: "Remove files, or with --all the whole workspace with its history",
		Long: "Remove files or directories from the newest version; older versions keep them. --all\n" +
			"removes the whole workspace with its history. This cannot be undone and needs --yes.",
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		switch {
		case all == (len(args) > 0):
			return usage("rm: want either paths, or --all for the whole workspace").try("codefleet workspace rm --help")
		case all && !yes:
			return usage("this would remove the workspace %s with its history", ws.Name()).
				try("codefleet workspace rm --workspace " + ws.Name() + " --all --yes")
		case all:
			if err := rejectEmpty(ctx, ws); err != nil {
				return err
			}
			if err := ws.Delete(ctx); err != nil {
				return err
			}
			return a.print(struct {
				Removed string `json:"removed"`
			}{ws.Name()}, func(w io.Writer) { fmt.Fprintln(w, "removed the workspace", ws.Name()) })
		}
		names, err := pathsOf(args)
		if err == nil && len(names) > 1 {
			err = checkPaths(ctx, ws, names)
		}
		if err != nil {
			return err // nothing is removed
		}
		var done client.Commit
		for _, name := range topmost(names) {
			c, err := ws.Remove(ctx, name)
			if err != nil && done.Generation > 0 {
				return errors.Join(a.showCommit(ws, done), err)
			}
			if err != nil {
				return err
			}
			c.Changed, c.Total = append(done.Changed, c.Changed...), done.Total+c.Total
			done = c
		}
		return a.showCommit(ws, done)
	})
	c.Flags().BoolVar(&all, "all", false, "remove the whole workspace")
	c.Flags().BoolVar(&yes, "yes", false, "confirm --all")
	a.completeFiles(c)
	return c
}

// pathsOf returns the paths that the arguments of rm name, sorted, each once.
func pathsOf(args []string) ([]string, error) {
	names := make([]string, len(args))
	for i, arg := range args {
		if names[i] = directoryOf(arg); names[i] == "" {
			return nil, usage("%s is the whole workspace", arg).try("codefleet workspace rm --all --yes")
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// topmost returns the paths that are not below another one of them.
func topmost(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		return slices.ContainsFunc(paths, func(dir string) bool { return strings.HasPrefix(p, dir+"/") })
	})
}

// checkPaths returns the fleet's error for the first of the names that the newest version does not have.
func checkPaths(ctx context.Context, ws *client.Workspace, names []string) error {
	files, _, err := ws.Files(ctx, "", "")
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, f := range files {
		known[f.Path] = true
	}
	for _, name := range names {
		if !known[name] {
			return &client.APIError{
				Status: http.StatusNotFound, Code: errcode.UnknownFile,
				Message: fmt.Sprintf("the workspace %s has no file %q", ws.Name(), name),
			}
		}
	}
	return nil
}

func (a *app) wsPinCommand() *cobra.Command {
	var remove bool
	c := a.wsCommand(&cobra.Command{
		Use:   "pin [NAME [VERSION]]",
		Short: "Keep a version under a name until the pin is removed, or list the pins",
		Example: "  codefleet workspace pin before-upgrade         keep the newest version\n" +
			"  codefleet workspace pin release 12\n  codefleet workspace pin --remove release",
		Args: cobra.MaximumNArgs(2),
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		switch {
		case remove && len(args) != 1:
			return usage("--remove: want the name of one pin, and no version")
		case remove:
			return a.unpin(ctx, ws, args[0])
		case len(args) == 0:
			pins, err := ws.Pins(ctx)
			if err == nil && len(pins) == 0 {
				err = rejectEmpty(ctx, ws)
			}
			if err != nil {
				return err
			}
			return list(a, pins, "PIN\tGENERATION", func(p client.Pin) []any { return []any{p.Name, p.Generation} })
		}
		p, err := ws.Pin(ctx, args[0], arg(args, 1))
		if err != nil {
			return err
		}
		return a.print(p, func(w io.Writer) { fmt.Fprintf(w, "generation %d is kept as %s\n", p.Generation, p.Name) })
	})
	c.Flags().BoolVar(&remove, "remove", false, "remove the pin")
	return c
}

// unpin removes a pin. An unknown name is an error, because it was probably mistyped.
func (a *app) unpin(ctx context.Context, ws *client.Workspace, name string) error {
	pins, err := ws.Pins(ctx)
	if err != nil {
		return err
	}
	if len(pins) == 0 {
		if err := rejectEmpty(ctx, ws); err != nil {
			return err
		}
	}
	i := slices.IndexFunc(pins, func(p client.Pin) bool { return p.Name == name })
	if i < 0 {
		return usage("pin: %s has no pin %q", ws.Name(), name).
			try("codefleet workspace pin --workspace " + ws.Name())
	}
	if err := ws.Unpin(ctx, name); err != nil {
		return err
	}
	return a.print(pins[i], func(w io.Writer) {
		fmt.Fprintf(w, "%s no longer keeps generation %d\n", name, pins[i].Generation)
	})
}
