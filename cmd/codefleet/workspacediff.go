package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
)

func (a *app) wsDiffCommand() *cobra.Command {
	var stat, nameOnly bool
	c := a.wsCommand(&cobra.Command{
		Use:   "diff A [B]",
		Short: "Show the changes between versions A and B; B defaults to the newest",
		Long: "Show the changes between versions A and B, in the format of git. B defaults to the newest\n" +
			"version. Of files that are not UTF-8 text or too large, the sizes are shown.",
		Example: "  codefleet workspace diff 3 7\n" +
			"  codefleet workspace diff before-upgrade --stat     the changed paths and their sizes",
		Args: cobra.RangeArgs(1, 2),
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		if stat || nameOnly {
			return a.listChanges(ctx, ws, args, nameOnly)
		}
		diffs, err := compareVersions(ctx, ws, args[0], arg(args, 1))
		if err != nil {
			return err
		}
		return a.showDiffs(diffs)
	})
	c.Flags().BoolVar(&stat, "stat", false, "list the changed paths and their sizes")
	c.Flags().BoolVar(&nameOnly, "name-only", false, "list the changed paths")
	c.MarkFlagsMutuallyExclusive("stat", "name-only")
	a.completeVersions(c, 2)
	return c
}

func (a *app) showDiffs(diffs []pathDiff) error {
	if a.output == "json" {
		return a.print(diffs, nil)
	}
	printed := 0
	for _, d := range diffs {
		text := d.text()
		a.paintDiff(a.stdout, text)
		printed += len(text)
	}
	if len(diffs) > 0 && printed == 0 {
		fmt.Fprintln(a.stderr, "note: only directories differ; --stat lists them")
	}
	return nil
}

// listChanges prints the paths that differ between two versions.
func (a *app) listChanges(ctx context.Context, ws *client.Workspace, versions []string, nameOnly bool) error {
	changes, err := ws.Diff(ctx, versions[0], arg(versions, 1))
	if err != nil {
		return err
	}
	return a.print(orEmpty(changes), func(w io.Writer) {
		for _, c := range changes {
			if nameOnly {
				row(w, c.Path)
			} else {
				row(w, c.Op, c.Path, c.Bytes)
			}
		}
	})
}

const (
	// maxDiffFile is the size limit, in bytes, of a file whose content is compared.
	maxDiffFile = 1 << 20
	// maxDiffTotal is the limit of the content of all files of both versions.
	maxDiffTotal = 64 << 20
)

// pathDiff is what `workspace diff -o json` prints of one path.
type pathDiff struct {
	client.PathChange
	// Diff is the difference of the content, in the unified format. It is empty if the content is equal.
	Diff string `json:"diff,omitempty"`
	// NotShown says why the difference of the content is not in Diff: "binary" or "too large".
	NotShown string `json:"not_shown,omitempty"`

	old, now side
}

// side is a path in one of the compared versions. The zero value is a path that the version does not have.
type side struct {
	client.WorkspaceFile
	content []byte
}

// is reports whether the path is a file or a symbolic link, whose content can be compared.
func (v *side) is() bool { return v.Kind == "file" || v.Kind == "link" }

// mode formats the type and permissions as git does.
func (v *side) mode() string {
	if v.Kind == "link" {
		return "120000"
	}
	return fmt.Sprintf("100%03o", v.Mode)
}

// compareVersions returns the changes between two versions, with the differences of the content.
func compareVersions(ctx context.Context, ws *client.Workspace, from, to string) ([]pathDiff, error) {
	oldFiles, oldGeneration, err := ws.Files(ctx, from, "")
	if err != nil {
		return nil, badVersion(ctx, ws, from, to, err)
	}
	files, generation, err := ws.Files(ctx, to, "")
	if err != nil {
		return nil, badVersion(ctx, ws, from, to, err)
	}
	changes, err := ws.Diff(ctx, strconv.FormatInt(oldGeneration, 10), strconv.FormatInt(generation, 10))
	if err != nil {
		return nil, err
	}
	diffs := limited(pairs(changes, byPath(oldFiles), byPath(files)))
	err = errors.Join(
		read(ctx, ws, oldGeneration, diffs, func(d *pathDiff) *side { return &d.old }),
		read(ctx, ws, generation, diffs, func(d *pathDiff) *side { return &d.now }),
	)
	for i := range diffs {
		diffs[i].compare()
	}
	return diffs, err
}

// pairs returns the changes with both sides of each. A path that was a file and is a symbolic link now, or the reverse,
// is removed and added.
func pairs(changes []client.PathChange, old, now map[string]client.WorkspaceFile) []pathDiff {
	list := []pathDiff{}
	for _, c := range changes {
		from, to := side{WorkspaceFile: old[c.Path]}, side{WorkspaceFile: now[c.Path]}
		if from.is() && to.is() && from.Kind != to.Kind {
			list = append(list,
				pathDiff{PathChange: client.PathChange{Path: c.Path, Op: "removed", Bytes: from.Bytes}, old: from},
				pathDiff{PathChange: client.PathChange{Path: c.Path, Op: "added", Bytes: to.Bytes}, now: to})
			continue
		}
		list = append(list, pathDiff{PathChange: c, old: from, now: to})
	}
	return list
}

// limited marks the files of the list that are not read, because their content exceeds a limit.
func limited(list []pathDiff) []pathDiff {
	room := int64(maxDiffTotal)
	for i := range list {
		d := &list[i]
		size := d.old.Bytes + d.now.Bytes
		if max(d.old.Bytes, d.now.Bytes) > maxDiffFile || size > room {
			d.NotShown = "too large"
		} else if d.old.ETag != d.now.ETag {
			room -= size
		}
	}
	return list
}

// badVersion returns the error of a comparison with a version that cannot be listed. The parameters in its text are
// those of the comparison.
func badVersion(ctx context.Context, ws *client.Workspace, from, to string, err error) error {
	if _, better := ws.Diff(ctx, from, to); better != nil {
		return better
	}
	return err
}

func byPath(files []client.WorkspaceFile) map[string]client.WorkspaceFile {
	m := make(map[string]client.WorkspaceFile, len(files))
	for _, f := range files {
		m[f.Path] = f
	}
	return m
}

// read reads the content to compare of one of the versions.
func read(
	ctx context.Context, ws *client.Workspace, generation int64, diffs []pathDiff, of func(*pathDiff) *side,
) error {
	wanted := map[string]*side{}
	var paths []string
	for i := range diffs {
		d := &diffs[i]
		v := of(d)
		switch {
		case v.Kind == "link":
			v.content = []byte(v.Target)
		case v.Kind == "file" && d.NotShown == "" && d.old.ETag != d.now.ETag:
			wanted[d.Path], paths = v, append(paths, d.Path)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	return ws.ReadFiles(ctx, generation, paths, func(p string, content io.Reader) (err error) {
		if v := wanted[p]; v != nil {
			v.content, err = io.ReadAll(io.LimitReader(content, maxDiffFile))
		}
		return err
	})
}

// compare sets Diff, or NotShown.
func (d *pathDiff) compare() {
	same := d.old.Kind == d.now.Kind && d.old.ETag == d.now.ETag && d.old.Target == d.now.Target
	switch {
	case same || !d.old.is() && !d.now.is():
		d.NotShown = ""
		return
	case d.NotShown == "" && (isBinary(d.old.content) || isBinary(d.now.content)):
		d.NotShown = "binary"
	}
	if d.NotShown != "" {
		return
	}
	from, to := d.names()
	text := diff.Diff(from, d.old.content, to, d.now.content)
	_, text, _ = bytes.Cut(text, []byte("\n")) // the line with the command
	d.Diff = string(text)
}

// names returns the names of both versions in a diff.
func (d *pathDiff) names() (from, to string) {
	from, to = "a/"+printable(d.Path), "b/"+printable(d.Path)
	if !d.old.is() {
		from = "/dev/null"
	}
	if !d.now.is() {
		to = "/dev/null"
	}
	return from, to
}

func isBinary(content []byte) bool { return bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content) }

// text returns the difference as git prints it. Like git, it omits directories.
func (d *pathDiff) text() string {
	name := printable(d.Path)
	header := fmt.Sprintf("diff --git a/%s b/%s\n", name, name)
	switch old, now := d.old.mode(), d.now.mode(); {
	case !d.old.is() && !d.now.is():
		return ""
	case !d.old.is():
		header += "new file mode " + now + "\n"
	case !d.now.is():
		header += "deleted file mode " + old + "\n"
	case old != now:
		header += "old mode " + old + "\nnew mode " + now + "\n"
	}
	if d.NotShown == "" {
		return header + d.Diff
	}
	from, to := d.names()
	line := fmt.Sprintf("Binary files %s (%d bytes) and %s (%d bytes) differ\n", from, d.old.Bytes, to, d.now.Bytes)
	if d.NotShown == "too large" {
		line = fmt.Sprintf("Files %s (%d bytes) and %s (%d bytes) differ; they are too large to compare\n", from,
			d.old.Bytes, to, d.now.Bytes)
	}
	return header + line
}
