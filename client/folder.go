package client

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/dirsync"
	"github.com/codefleet/codefleet/internal/errcode"
)

// Policies for paths that have changed both in the directory and in the workspace.
const (
	Refuse   = dirsync.Refuse   // Pull and Push return a *ConflictError and change nothing
	KeepBoth = dirsync.KeepBoth // Pull keeps the local file and writes the workspace's as NAME.conflict-gN
	Theirs   = dirsync.Theirs   // Pull replaces the local file with the workspace's
	Ours     = dirsync.Ours     // Push replaces the workspace's file with the local one
)

type (
	// ConflictPolicy selects what happens to paths that have changed on both sides.
	ConflictPolicy = dirsync.Policy
	// ConflictError lists the paths that have changed on both sides. The call has changed nothing.
	ConflictError = dirsync.ConflictError
	// SyncReport lists what Pull or Push changed.
	SyncReport = dirsync.Report
	// WorkspaceFile is one path of a version. Its ETag is the SHA-256 of its content. For a file above 4 MiB, it is
	// the SHA-256 of the concatenated SHA-256 sums of its parts.
	WorkspaceFile = dirsync.FileInfo
	// FilePart is a piece of a large file's content.
	FilePart = dirsync.Part
)

// Pull updates an existing directory: it writes the files that have changed in the workspace since the last Pull or
// Push, and removes those that were removed there. Files that have changed only in the directory stay. The directory's
// file .codefleet-workspace.json records the last version. Pull skips and reports paths that could do harm: symbolic
// links that point outside the directory, .git, and names with control characters. Paths have the modes of the
// workspace, without the bits of the process's umask. If Pull fails, the report lists what it had written before; each
// of these files is complete, and another Pull continues.
func (w *Workspace) Pull(ctx context.Context, dir string, policy ConflictPolicy) (SyncReport, error) {
	f, err := w.openFolder(dir)
	if err != nil {
		return SyncReport{}, err
	}
	r, err := f.Pull(ctx, policy)
	return r, errors.Join(err, f.Close())
}

// Push commits what has changed in a directory since the last Pull or Push, all of it or nothing. Files that have
// changed only in the workspace stay. policy is Refuse or Ours. Push excludes __pycache__, .venv, node_modules, .git
// and the paths in .workspaceignore. The request that commits is not retried; another Push continues.
func (w *Workspace) Push(ctx context.Context, dir, message string, policy ConflictPolicy) (SyncReport, error) {
	f, err := w.openFolder(dir)
	if err != nil {
		return SyncReport{}, err
	}
	r, err := f.Push(ctx, message, policy)
	return r, errors.Join(err, f.Close())
}

// ReadFiles calls fn with the path and the content of each of the files at paths in a generation, in any order. It
// sends one request. It skips paths that are not files.
func (w *Workspace) ReadFiles(
	ctx context.Context, generation int64, paths []string, fn func(path string, content io.Reader) error,
) error {
	body, err := json.Marshal(map[string]any{"generation": generation, "paths": paths})
	if err != nil {
		return err
	}
	r := w.inWorkspace(httpRequest{
		method: http.MethodPost, path: []string{"archive"}, header: jsonHeader(), body: body,
	})
	d, err := w.client.overHTTP()
	if err != nil {
		return err
	}
	archive, err := d.open(ctx, r)
	if err != nil {
		return err
	}
	defer archive.Close()
	for t := tar.NewReader(archive); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read response of %s: %w", d.base().Host, err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := fn(h.Name, t); err != nil {
			return err
		}
	}
}

func (w *Workspace) openFolder(dir string) (*dirsync.Folder, error) {
	d, err := w.client.overHTTP()
	if err != nil {
		return nil, err
	}
	return dirsync.Open(dir, remote{w}, dirsync.Options{
		Workspace: d.base().Hostname() + "/" + w.name, Progress: w.Progress,
	})
}

// remote is a dirsync.Remote for a workspace.
type remote struct{ *Workspace }

func (r remote) Newest(ctx context.Context) (dirsync.Version, error) {
	info, err := r.Info(ctx)
	return dirsync.Version{Generation: info.Generation, Commit: info.Commit}, err
}

func (r remote) Log(ctx context.Context, limit int) ([]dirsync.Version, error) {
	commits, err := r.Workspace.Log(ctx, limit)
	versions := make([]dirsync.Version, len(commits))
	for i, c := range commits {
		versions[i] = dirsync.Version{Generation: c.Generation, Commit: c.Commit}
	}
	return versions, err
}

func (r remote) Files(ctx context.Context, generation int64) ([]dirsync.FileInfo, error) {
	if generation == 0 {
		return nil, nil
	}
	list, _, err := r.Workspace.Files(ctx, strconv.FormatInt(generation, 10), "")
	return list, err
}

// Read implements dirsync.Remote.
func (r remote) Read(ctx context.Context, generation int64, paths []string, fn func(string, io.Reader) error) error {
	return r.ReadFiles(ctx, generation, paths, fn)
}

// Write streams the edits as one form. The request is not retried; the next push repeats what was not committed.
func (r remote) Write(
	ctx context.Context, base int64, message string, edits []dirsync.Edit,
) (dirsync.Version, error) {
	boundary := multipart.NewWriter(io.Discard).Boundary()
	q := url.Values{"base": {strconv.FormatInt(base, 10)}}
	if message != "" {
		q.Set("message", message)
	}
	var done Commit
	err := r.do(ctx, httpRequest{
		method: http.MethodPost, path: []string{"files"}, query: q, once: true,
		header: http.Header{"Content-Type": {"multipart/form-data; boundary=" + boundary}},
		stream: func() io.Reader {
			out, in := io.Pipe()
			go func() { in.CloseWithError(writeForm(in, boundary, edits)) }() // ends when the request closes the pipe
			return out
		},
	}, 0, decoder(&done))
	if e, ok := errors.AsType[*APIError](err); ok && e.Code == errcode.Conflict {
		return dirsync.Version{}, &dirsync.ConflictError{Paths: e.Paths}
	}
	return dirsync.Version{Generation: done.Generation, Commit: done.Commit}, err
}

// otherEdit is the JSON of an edit that does not write a file.
type otherEdit struct {
	Path   string `json:"path"`
	Kind   string `json:"kind,omitempty"`
	Mode   string `json:"mode,omitempty"`
	Target string `json:"target,omitempty"`
}

// writeForm writes the edits as a form. Edits that do not write files come first, because a file may replace a
// directory.
func writeForm(to io.Writer, boundary string, edits []dirsync.Edit) error {
	form := multipart.NewWriter(to)
	if err := form.SetBoundary(boundary); err != nil {
		return err
	}
	var others []otherEdit
	for _, e := range edits {
		switch {
		case e.Remove:
			others = append(others, otherEdit{Path: e.Path})
		case e.Kind == dirsync.Dir:
			others = append(others, otherEdit{Path: e.Path, Kind: e.Kind, Mode: octal(e.Mode)})
		case e.Kind == dirsync.Symlink:
			others = append(others, otherEdit{Path: e.Path, Kind: e.Kind, Target: e.Target})
		}
	}
	if len(others) > 0 {
		part, err := form.CreateFormField("edits")
		if err == nil {
			err = json.NewEncoder(part).Encode(others)
		}
		if err != nil {
			return err
		}
	}
	for _, e := range edits {
		if e.Remove || e.Kind != dirsync.File {
			continue
		}
		if err := writeFile(form, e); err != nil {
			return err
		}
	}
	return form.Close()
}

func octal(mode uint32) string { return "0" + strconv.FormatUint(uint64(mode), 8) }

func writeFile(form *multipart.Writer, e dirsync.Edit) error {
	name := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(e.Path)
	header := textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="` + name + `"; filename="content"`},
		"Content-Type":        {"application/octet-stream"},
		"Codefleet-Mode":      {octal(e.Mode)},
		"Codefleet-Time":      {e.Time.Format(time.RFC3339Nano)},
	}
	if e.Mode == 0 {
		header.Del("Codefleet-Mode")
	}
	part, err := form.CreatePart(header)
	if err != nil {
		return err
	}
	content, err := e.Open()
	if err != nil {
		return err
	}
	_, err = io.Copy(part, content)
	return errors.Join(err, content.Close())
}
