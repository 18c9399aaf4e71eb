package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/dirsync"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) artifactsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "artifacts",
		Short: "List and download the files that a task returned",
		Long: "List and download the files that a task returned: those that it wrote below artifacts/, those\n" +
			"that --out selected, and the figures and tables that it showed.",
	}
	return commandGroup(c, a.artifactsLsCommand(), a.artifactsGetCommand())
}

func (a *app) artifactsLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "ls ID",
		Short:             "List the artifacts of a task",
		Args:              oneTask,
		ValidArgsFunction: a.completeTasks(),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			list, err := artifactsOf(ctx, c, args[0])
			if err != nil {
				return err
			}
			a.noteNoArtifacts(list)
			return a.print(orEmpty(list), func(w io.Writer) {
				for _, f := range list {
					row(w, f.Bytes, f.MediaType, printable(f.Path))
				}
			})
		}),
	}
}

// noteNoArtifacts prints a note if there are no artifacts.
func (a *app) noteNoArtifacts(list []client.Artifact) {
	if len(list) == 0 {
		fmt.Fprintln(a.stderr, "note: the task has no artifacts")
	}
}

// artifactsOf returns the artifacts of a task that has ended.
func artifactsOf(ctx context.Context, c *client.Client, id string) ([]client.Artifact, error) {
	r, err := c.Result(ctx, id)
	if errors.Is(err, client.ErrNotEnded) {
		return nil, usage("%v", err).try("codefleet logs -f " + id)
	}
	return r.Artifacts, err
}

// savedArtifact is what `artifacts get -o json` prints for each file.
type savedArtifact struct {
	Path  string `json:"path"`
	File  string `json:"file"` // name in the directory of --dir
	Bytes int64  `json:"bytes"`
}

func (a *app) artifactsGetCommand() *cobra.Command {
	var dir string
	var force bool
	c := &cobra.Command{
		Use:   "get ID [PATH…]",
		Short: "Download artifacts of a task, or all of them",
		Long: "Download the named artifacts of a task, or all of them. Each is saved under its file name, without\n" +
			"the directories of its path. An existing file is an error, unless --force is given.",
		Example:           "  codefleet artifacts get 7g7iq5vjq3ulae7rsddnvo5cw4 artifacts/figure-1.png --dir pictures",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeTasks(),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			list, err := artifactsOf(ctx, c, args[0])
			if err != nil {
				return err
			}
			if list, err = chosenArtifacts(list, args[0], args[1:]); err != nil {
				return err
			}
			a.noteNoArtifacts(list)
			return a.getArtifacts(ctx, c, args[0], dir, force, list)
		}),
	}
	c.Flags().StringVar(&dir, "dir", ".", "`DIRECTORY` for the files; created if missing")
	c.Flags().BoolVar(&force, "force", false, "replace existing files")
	return c
}

// chosenArtifacts returns the artifacts with the given paths, or all if there are no paths. It returns an error if a
// path is unknown, or if two of the artifacts have the same file name.
func chosenArtifacts(list []client.Artifact, id string, paths []string) ([]client.Artifact, error) {
	var chosen []client.Artifact
	for n, p := range paths {
		if slices.Contains(paths[:n], p) {
			continue
		}
		i := slices.IndexFunc(list, func(f client.Artifact) bool { return f.Path == p })
		if i < 0 {
			return nil, usage("the task has no artifact %q", p).try("codefleet artifacts ls " + id)
		}
		chosen = append(chosen, list[i])
	}
	if len(paths) == 0 {
		chosen = list
	}
	byFile := map[string]string{}
	for _, f := range chosen {
		name := path.Base(f.Path)
		if dirsync.LeadsToGit(name) {
			return nil, usage("the artifact %q is not saved: git runs what a file of that name says", f.Path).
				try("codefleet artifacts get " + id + " PATH, for each of the others")
		}
		if other, taken := byFile[name]; taken && other != f.Path {
			return nil, usage("the artifacts %q and %q would be saved as the same file", other, f.Path).
				try("codefleet artifacts get " + id + " PATH --dir DIRECTORY, for each of them")
		}
		byFile[name] = f.Path
	}
	return chosen, nil
}

func (a *app) getArtifacts(
	ctx context.Context, c *client.Client, id, dir string, force bool, list []client.Artifact,
) error {
	if err := requireDir(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	saved := []savedArtifact{}
	for _, f := range list {
		// A program chose the path, so only its last element is used. OpenRoot also keeps the file in dir.
		name := path.Base(f.Path)
		if err := saveArtifact(ctx, c, root, id, f.Path, name, force); err != nil {
			return err
		}
		saved = append(saved, savedArtifact{f.Path, name, f.Bytes})
	}
	return a.print(saved, func(w io.Writer) {
		for _, s := range saved {
			row(w, s.Bytes, printable(path.Join(dir, s.File)))
		}
	})
}

// rejectDir returns an error if root has a directory of the name, where a file is to be written.
func rejectDir(root *os.Root, name string) error {
	if info, err := root.Lstat(name); err == nil && info.IsDir() {
		return usage("%q is a directory", name).try("the same command with another --dir")
	}
	return nil
}

// saveArtifact downloads an artifact to a file of root with the given name. Without force, an existing file is an
// error. With force, the complete artifact replaces it. A directory of the name is an error.
func saveArtifact(
	ctx context.Context, c *client.Client, root *os.Root, id, from, name string, force bool,
) (err error) {
	if err := rejectDir(root, name); err != nil {
		return err
	}
	to := name
	if force {
		to = ".codefleet-tmp-" + strings.ToLower(rand.Text())
	}
	out, err := root.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return usage("the file %q exists", name).try("the same command with --force, or with another --dir")
	}
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err == nil && force {
			err = root.Rename(to, name)
		}
		if err != nil {
			_ = root.Remove(to) // an incomplete file must not look complete
		}
	}()
	in, err := c.Artifact(ctx, id, from)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("download artifact %q: %w", from, err)
	}
	return nil
}

// artifactLine describes an artifact and how to download it. If the path is not printable, or would be read as a flag,
// the command leaves it out and downloads all artifacts.
func (a *app) artifactLine(id string, f client.Artifact) string {
	command := "codefleet artifacts get " + id
	if printable(f.Path) == f.Path && !strings.HasPrefix(f.Path, "-") {
		command += " " + shellescape.Quote(f.Path)
	}
	return printable(fmt.Sprintf("artifact: %s (%s): %s", f.Path, text.Count(f.Bytes, "byte"), a.withFlags(command)))
}
