package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) wsDiffCommand() *cobra.Command {
	var stat, nameOnly bool
	c := a.wsCommand(&cobra.Command{
		Use:   "diff A [B]",
		Short: "Show the changes between versions A and B; B defaults to the newest",
		Long: "Show the changes between versions A and B, in the format of git. B defaults to the newest\n" +
			"version. For files that are too large or not UTF-8 text, only the sizes are shown.",
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
		shown := d.text()
		a.paintDiff(a.stdout, shown)
		printed += len(shown)
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
	// maxDiffTotal is the size limit, in bytes, of the compared content of both versions together.
	maxDiffTotal = 64 << 20
)

// pathDiff is what `workspace diff -o json` prints for one path.
type pathDiff struct {
	client.PathChange
	// Diff is the difference between the contents, in the unified format. It is empty if they are equal.
	Diff string `json:"diff,omitempty"`
	// NotShown is the reason why Diff is empty although the contents differ: "binary" or "too large".
	NotShown string `json:"not_shown,omitempty"`

	before, after side
}

// side is a path in one of the compared versions. The zero value means that the version does not have the path.
type side struct {
	client.WorkspaceFile
	content []byte
}

// hasContent reports whether the path is a file or a symbolic link. Their contents are compared.
func (s *side) hasContent() bool { return s.Kind == "file" || s.Kind == "link" }

// mode formats the type and permissions as git does.
func (s *side) mode() string {
	if s.Kind == "link" {
		return "120000"
	}
	return fmt.Sprintf("100%03o", s.Mode)
}

// compareVersions returns the changes between two versions, with the differences between the contents.
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
	diffs := pairSides(changes, byPath(oldFiles), byPath(files))
	markTooLarge(diffs)
	if err := errors.Join(
		readContent(ctx, ws, oldGeneration, diffs, func(d *pathDiff) *side { return &d.before }),
		readContent(ctx, ws, generation, diffs, func(d *pathDiff) *side { return &d.after }),
	); err != nil {
		return nil, err
	}
	for i := range diffs {
		diffs[i].compare()
	}
	return diffs, nil
}

// pairSides adds both sides to each change. If a file has become a symbolic link, or the reverse, the path is removed
// and added.
func pairSides(changes []client.PathChange, before, after map[string]client.WorkspaceFile) []pathDiff {
	diffs := []pathDiff{}
	for _, c := range changes {
		from, to := side{WorkspaceFile: before[c.Path]}, side{WorkspaceFile: after[c.Path]}
		if from.hasContent() && to.hasContent() && from.Kind != to.Kind {
			diffs = append(diffs,
				pathDiff{PathChange: client.PathChange{Path: c.Path, Op: "removed", Bytes: from.Bytes}, before: from},
				pathDiff{PathChange: client.PathChange{Path: c.Path, Op: "added", Bytes: to.Bytes}, after: to})
			continue
		}
		diffs = append(diffs, pathDiff{PathChange: c, before: from, after: to})
	}
	return diffs
}

// markTooLarge marks the files whose content exceeds a limit. They are not read.
func markTooLarge(diffs []pathDiff) {
	remaining := int64(maxDiffTotal)
	for i := range diffs {
		d := &diffs[i]
		size := d.before.Bytes + d.after.Bytes
		if max(d.before.Bytes, d.after.Bytes) > maxDiffFile || size > remaining {
			d.NotShown = "too large"
		} else if d.before.ETag != d.after.ETag {
			remaining -= size
		}
	}
}

// badVersion returns the error for a version that cannot be listed. It prefers the error of a diff request, which says
// whether from or to is the bad version.
func badVersion(ctx context.Context, ws *client.Workspace, from, to string, listErr error) error {
	_, diffErr := ws.Diff(ctx, from, to)
	return cmp.Or(diffErr, listErr)
}

func byPath(files []client.WorkspaceFile) map[string]client.WorkspaceFile {
	m := make(map[string]client.WorkspaceFile, len(files))
	for _, f := range files {
		m[f.Path] = f
	}
	return m
}

// readContent reads the content to compare from one of the versions. sideOf returns this version's side of a diff.
func readContent(
	ctx context.Context, ws *client.Workspace, generation int64, diffs []pathDiff, sideOf func(*pathDiff) *side,
) error {
	wanted := map[string]*side{}
	var paths []string
	for i := range diffs {
		d := &diffs[i]
		v := sideOf(d)
		switch {
		case v.Kind == "link":
			v.content = []byte(v.Target)
		case v.Kind == "file" && d.NotShown == "" && d.before.ETag != d.after.ETag:
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

// compare sets Diff or NotShown, unless the contents are equal.
func (d *pathDiff) compare() {
	same := d.before.Kind == d.after.Kind && d.before.ETag == d.after.ETag && d.before.Target == d.after.Target
	switch {
	case same || !d.before.hasContent() && !d.after.hasContent():
		d.NotShown = ""
	case d.NotShown != "":
	case isBinary(d.before.content) || isBinary(d.after.content):
		d.NotShown = "binary"
	default:
		from, to := d.names()
		lines := diff.Diff(from, d.before.content, to, d.after.content)
		_, lines, _ = bytes.Cut(lines, []byte("\n")) // the first line is a diff command
		d.Diff = string(lines)
	}
}

// names returns the names of the two files in a diff.
func (d *pathDiff) names() (from, to string) {
	from, to = gitName("a/"+d.Path), gitName("b/"+d.Path)
	if !d.before.hasContent() {
		from = "/dev/null"
	}
	if !d.after.hasContent() {
		to = "/dev/null"
	}
	return from, to
}

// gitName returns a path as git writes it in a diff: with quotes and escapes if it has hidden characters, quotes or
// backslashes. So the path is exact, and a name with a line break cannot forge lines of the diff.
func gitName(path string) string {
	if text.Printable(path) == path && !strings.ContainsAny(path, "\"\\\n\r\t") {
		return path
	}
	var b strings.Builder
	for _, c := range []byte(path) {
		switch {
		case c == '"' || c == '\\':
			b.Write([]byte{'\\', c})
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}

func isBinary(content []byte) bool { return bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content) }

// text returns the difference as git prints it. Like git, it omits directories.
func (d *pathDiff) text() string {
	header := fmt.Sprintf("diff --git %s %s\n", gitName("a/"+d.Path), gitName("b/"+d.Path))
	switch before, after := d.before.mode(), d.after.mode(); {
	case !d.before.hasContent() && !d.after.hasContent():
		return ""
	case !d.before.hasContent():
		header += "new file mode " + after + "\n"
	case !d.after.hasContent():
		header += "deleted file mode " + before + "\n"
	case before != after:
		header += "old mode " + before + "\nnew mode " + after + "\n"
	}
	if d.NotShown == "" {
		return header + d.Diff
	}
	from, to := d.names()
	line := "Binary files %s (%s) and %s (%s) differ\n"
	if d.NotShown == "too large" {
		line = "Files %s (%s) and %s (%s) differ; they are too large to compare\n"
	}
	return header + fmt.Sprintf(line, from, text.Count(d.before.Bytes, "byte"), to, text.Count(d.after.Bytes, "byte"))
}
