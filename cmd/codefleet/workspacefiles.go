package main

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
)

func (a *app) wsLsCommand() *cobra.Command {
	var version string
	var recursive bool
	c := a.wsCommand(&cobra.Command{
		Use:   "ls [PATH]",
		Short: "List the files of a version, those of a directory, or one file",
		Args:  atMostOne,
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		dir := directoryOf(arg(args, 0))
		files, _, err := ws.Files(ctx, version, dir)
		if err != nil {
			return err
		}
		if len(files) == 0 && dir != "" {
			if files, err = listOne(ctx, ws, version, dir); err != nil {
				return err
			}
		} else if !recursive {
			files = slices.DeleteFunc(files, func(f client.WorkspaceFile) bool {
				return path.Dir(f.Path) != cmp.Or(dir, ".")
			})
		}
		if len(files) == 0 {
			if err := rejectEmpty(ctx, ws); err != nil {
				return err
			}
		}
		if len(files) == 0 {
			a.printNote("note: no files; to list the workspaces, run codefleet workspace list")
		}
		return a.print(orEmpty(files), func(w io.Writer) {
			for _, f := range files {
				changed := "-" // unknown for directories and symbolic links
				if f.Kind == "file" {
					changed = f.Time.Local().Format(time.DateTime)
				}
				row(w, modeText(f), f.Bytes, changed, nameText(f))
			}
		})
	})
	c.Flags().StringVarP(&version, "generation", "g", "", "`VERSION`: a generation or a pin (default: the newest)")
	c.Flags().BoolVarP(&recursive, "recursive", "r", false, "list directories recursively")
	a.completeFiles(c)
	return c
}

// listOne lists a path that contains no others: itself, or nothing for an empty directory. If the path does not exist,
// the error is that of cat.
func listOne(ctx context.Context, ws *client.Workspace, version, name string) ([]client.WorkspaceFile, error) {
	parent := path.Dir(name)
	if parent == "." {
		parent = ""
	}
	files, _, err := ws.Files(ctx, version, parent)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(files, func(f client.WorkspaceFile) bool { return f.Path == name })
	if i >= 0 && files[i].Kind == "dir" {
		return nil, nil
	}
	if i >= 0 {
		return files[i : i+1], nil
	}
	r, err := ws.Open(ctx, version, name, 0)
	if err != nil {
		return nil, err
	}
	return nil, r.Close() // a program has written it in the meantime
}

// directoryOf returns the path of a directory in a workspace, which is empty for the whole workspace.
func directoryOf(arg string) string {
	if dir := path.Clean(strings.Trim(arg, "/")); dir != "." {
		return dir
	}
	return ""
}

// modeText formats a mode as ls does.
func modeText(f client.WorkspaceFile) string {
	kinds := map[string]string{"dir": "d", "link": "l"}
	return cmp.Or(kinds[f.Kind], "-") + fs.FileMode(f.Mode).Perm().String()[1:]
}

// nameText formats a path as ls does. It quotes a name with control characters, such as a newline.
func nameText(f client.WorkspaceFile) string {
	quoted := func(name string) string {
		if printable(name) != name {
			return strconv.Quote(name)
		}
		return name
	}
	switch f.Kind {
	case "dir":
		return quoted(f.Path + "/")
	case "link":
		return quoted(f.Path) + " -> " + quoted(f.Target)
	}
	return quoted(f.Path)
}

func (a *app) wsCatCommand() *cobra.Command {
	var version string
	c := a.wsCommand(&cobra.Command{
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
	c.Flags().StringVarP(&version, "generation", "g", "", "`VERSION`: a generation or a pin (default: the newest)")
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
