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

// What Pull and Push do with paths that were changed both here and in the workspace.
const (
	Refuse   = dirsync.Refuse   // a *ConflictError, and nothing is changed
	KeepBoth = dirsync.KeepBoth // of Pull: ours keeps the name, theirs is NAME.conflict-gN beside it
	Theirs   = dirsync.Theirs   // of Pull: what the workspace has replaces what is here
	Ours     = dirsync.Ours     // of Push: what is here replaces what the workspace has
)

type (
	// ConflictPolicy says what becomes of paths that both sides changed.
	ConflictPolicy = dirsync.Policy
	// ConflictError names the paths that both sides changed. Nothing was done.
	ConflictError = dirsync.ConflictError
	// SyncReport is what Pull or Push did.
	SyncReport = dirsync.Report
	// WorkspaceFile is one path of a version. Its ETag changes with its content: the SHA-256 of that,
	// or of the parts' of a file above 4 MiB, one after the other.
	WorkspaceFile = dirsync.Entry
	// FilePart is a piece of a large file's content.
	FilePart = dirsync.Part
)

// Pull brings the newest version into a directory that exists: what changed in the workspace since
// directory and workspace last met, and nothing else. What changed in the directory only stays. The
// directory remembers what it met in .codefleet-workspace.json. Names that could do harm here (links
// that lead out, .git, control characters) are left out and reported as skipped.
func (w *Workspace) Pull(ctx context.Context, dir string, policy ConflictPolicy) (SyncReport, error) {
	f, err := w.openFolder(dir)
	if err != nil {
		return SyncReport{}, err
	}
	r, err := f.Pull(ctx, policy)
	return r, errors.Join(err, f.Close())
}

// Push makes what changed in a directory, since directory and workspace last met, a commit: all of it
// or nothing. What changed in the workspace only stays. policy is Refuse or Ours. Excluded are what
// .workspaceignore names, __pycache__, .venv, node_modules and .git.
func (w *Workspace) Push(ctx context.Context, dir, message string, policy ConflictPolicy) (SyncReport, error) {
	f, err := w.openFolder(dir)
	if err != nil {
		return SyncReport{}, err
	}
	r, err := f.Push(ctx, message, policy)
	return r, errors.Join(err, f.Close())
}

func (w *Workspace) openFolder(dir string) (*dirsync.Folder, error) {
	d, err := w.client.overHTTP()
	if err != nil {
		return nil, err
	}
	return dirsync.Open(dir, remote{w}, dirsync.Options{Workspace: d.base.Hostname() + "/" + w.name})
}

// remote is a workspace as package folder wants it.
type remote struct{ *Workspace }

func (r remote) Newest(ctx context.Context) (int64, error) {
	info, err := r.Info(ctx)
	return info.Generation, err
}

func (r remote) Files(ctx context.Context, generation int64) ([]dirsync.Entry, error) {
	if generation == 0 {
		return nil, nil
	}
	list, _, err := r.Workspace.Files(ctx, strconv.FormatInt(generation, 10), "")
	return list, err
}

// Read asks for many files at a time.
func (r remote) Read(ctx context.Context, generation int64, paths []string, fn func(string, io.Reader) error) error {
	body, err := json.Marshal(map[string]any{"generation": generation, "paths": paths})
	if err != nil {
		return err
	}
	c := r.at(call{method: http.MethodPost, path: []string{"archive"}, header: jsonHeader(), body: body})
	d, err := r.client.overHTTP()
	if err != nil {
		return err
	}
	resp, err := retry(ctx, d.retryFor, func() (*http.Response, error) { return d.send(ctx, c) })
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for t := tar.NewReader(resp.Body); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read answer of %s: %w", d.base.Host, err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := fn(h.Name, t); err != nil {
			return err
		}
	}
}

// Write streams the edits as one form. It may be repeated, but is not: the next push finds out.
func (r remote) Write(ctx context.Context, base int64, message string, edits []dirsync.Edit) (int64, error) {
	boundary := multipart.NewWriter(io.Discard).Boundary()
	q := url.Values{"base": {strconv.FormatInt(base, 10)}}
	if message != "" {
		q.Set("message", message)
	}
	var done Commit
	err := r.do(ctx, call{
		method: http.MethodPost, path: []string{"files"}, query: q, once: true,
		header: http.Header{"Content-Type": {"multipart/form-data; boundary=" + boundary}},
		stream: func() io.Reader {
			out, in := io.Pipe()
			go func() { in.CloseWithError(writeForm(in, boundary, edits)) }() // ends with the request, which closes its body
			return out
		},
	}, 0, decoder(&done))
	if e, ok := errors.AsType[*APIError](err); ok && e.Code == errcode.Conflict {
		return 0, &dirsync.ConflictError{Paths: e.Paths}
	}
	return done.Generation, err
}

// otherEdit is an edit that is not the content of a file, as the HTTP interface takes it.
type otherEdit struct {
	Path   string `json:"path"`
	Kind   string `json:"kind,omitempty"`
	Mode   string `json:"mode,omitempty"`
	Target string `json:"target,omitempty"`
}

// writeForm writes what is no file first: a directory may have to make room for a file.
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
		case e.Kind == dirsync.Link:
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
