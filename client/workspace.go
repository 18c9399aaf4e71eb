package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

const mainWorkspace = "main"

// Workspace is one workspace with its history. Generations of commits begin with 1. A version is given as a generation
// or the name of a pin; an empty version is the newest. Over NATS, all methods fail with the code "http_only".
type Workspace struct {
	client *Client
	name   string

	// Progress, if it is set, is called while Pull and Push transfer content. done is the size of the completed files,
	// total the size of all files to transfer. If files change during a Push, both begin again.
	Progress func(done, total int64)
}

// Workspace returns the workspace with the given name; an empty name selects main. It makes no request. A workspace
// without commits is empty.
func (c *Client) Workspace(name string) *Workspace {
	return &Workspace{client: c, name: cmp.Or(name, mainWorkspace)}
}

// Name returns the workspace's name.
func (w *Workspace) Name() string { return w.name }

// overHTTP returns the HTTP connection, or an error over NATS.
func (c *Client) overHTTP() (*httpConn, error) {
	if d, ok := c.conn.(*httpConn); ok {
		return d, nil
	}
	return nil, httpOnly()
}

// Types for the history and maintenance of workspaces. Package schemas documents their fields.
type (
	// Commit is one version of a workspace.
	Commit = schemas.Commit
	// CheckOptions specify how much Check reads.
	CheckOptions = schemas.CheckOptions
	// Checked is the report of Check.
	Checked = schemas.CheckReport
	// RepairOptions specify how much Repair reads, and whether it commits.
	RepairOptions = schemas.RepairOptions
	// LostPath is a path whose content is lost.
	LostPath = schemas.LostPath
	// Repaired is the report of Repair.
	Repaired = schemas.RepairReport
)

// WorkspaceInfo describes the newest version of a workspace.
type WorkspaceInfo struct {
	Name       string    `json:"name"`
	Generation int64     `json:"generation"` // 0 if the workspace has no commits
	Commit     string    `json:"commit,omitempty"`
	Time       time.Time `json:"time,omitzero"` // time of the newest commit
	Files      int       `json:"files"`         // number of files, directories and symbolic links
	Bytes      int64     `json:"bytes"`
	Deleted    bool      `json:"deleted,omitempty"` // the newest generation is the deletion
}

// PathChange is one difference between two versions.
type PathChange struct {
	Path  string `json:"path"`
	Op    string `json:"op"`    // added, removed, modified
	Bytes int64  `json:"bytes"` // size after the change, or before the removal
}

// Pin is a name that keeps a version from garbage collection.
type Pin struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
}

// Workspaces returns the workspaces of the caller's tenant, sorted by name.
func (c *Client) Workspaces(ctx context.Context) ([]WorkspaceInfo, error) {
	return get[[]WorkspaceInfo](ctx, c, nil, "workspaces")
}

// Info returns the newest generation and size of the workspace.
func (w *Workspace) Info(ctx context.Context) (WorkspaceInfo, error) {
	return workspaceRequest[WorkspaceInfo](ctx, w, httpRequest{})
}

// Delete deletes the workspace with its history. Tasks that have already started cannot commit; later tasks start with
// an empty workspace. The request is not retried: tasks may have filled the workspace since.
func (w *Workspace) Delete(ctx context.Context) error {
	return w.do(ctx, httpRequest{method: http.MethodDelete, once: true}, responseTimeout, decoder(nil))
}

// Log returns commits, the newest first. limit is from 1 to 1000; 0 selects 100.
func (w *Workspace) Log(ctx context.Context, limit int) ([]Commit, error) {
	q := url.Values{}
	setLimit(q, limit)
	return workspaceRequest[[]Commit](ctx, w, httpRequest{path: []string{"log"}, query: q})
}

// Diff returns the paths that differ between the versions from and to.
func (w *Workspace) Diff(ctx context.Context, from, to string) ([]PathChange, error) {
	q := url.Values{"from": {from}, "to": {to}}
	return workspaceRequest[[]PathChange](ctx, w, httpRequest{path: []string{"diff"}, query: q})
}

// versionBody is the body of requests about a version.
type versionBody struct {
	Generation string `json:"generation,omitempty"` // a generation or the name of a pin
	To         string `json:"to,omitempty"`
	Message    string `json:"message,omitempty"`
}

// Restore commits an earlier version again. The commits in between stay in the history. The request is not retried
// after a lost connection, because a second one would also take back what was committed after the first.
func (w *Workspace) Restore(ctx context.Context, version, message string) (Commit, error) {
	return workspacePost[Commit](ctx, w, "restore", versionBody{Generation: version, Message: message})
}

// Fork creates the workspace named to from a version of this one, without copying content. If the workspace exists,
// the error has the code "workspace_exists". The request is not retried.
func (w *Workspace) Fork(ctx context.Context, version, to string) (Commit, error) {
	return workspacePost[Commit](ctx, w, "fork", versionBody{Generation: version, To: to})
}

// Check verifies that all kept versions can be read.
func (w *Workspace) Check(ctx context.Context, o CheckOptions) (Checked, error) {
	return workspacePost[Checked](ctx, w, "check", o)
}

// Repair commits what is readable of the newest version, if objects are lost or damaged. An intact workspace does not
// change.
func (w *Workspace) Repair(ctx context.Context, o RepairOptions) (Repaired, error) {
	return workspacePost[Repaired](ctx, w, "repair", o)
}

// Mirrored is the report of Mirror.
type Mirrored struct {
	Generation int64    `json:"generation"` // the mirrored generation
	Put        int      `json:"put"`        // number of written files
	Removed    int      `json:"removed"`    // number of removed objects
	Skipped    []string `json:"skipped"`    // paths that are too long for an object key; only the first ones
}

// Mirror updates the mirror of the workspace to the newest version, as each commit does. If the fleet has no mirror,
// the error has the code "no_mirror".
func (w *Workspace) Mirror(ctx context.Context) (Mirrored, error) {
	return workspacePost[Mirrored](ctx, w, "mirror", nil)
}

// Pins returns the pins, the oldest first.
func (w *Workspace) Pins(ctx context.Context) ([]Pin, error) {
	return workspaceRequest[[]Pin](ctx, w, httpRequest{path: []string{"pins"}})
}

// Pin pins a version under a name, which must not be a number.
func (w *Workspace) Pin(ctx context.Context, name, version string) (Pin, error) {
	body, err := json.Marshal(versionBody{Generation: version})
	if err != nil {
		return Pin{}, err
	}
	r := httpRequest{method: http.MethodPut, path: []string{"pins", name}, header: jsonHeader(), body: body}
	return workspaceRequest[Pin](ctx, w, r)
}

// Unpin removes a pin.
func (w *Workspace) Unpin(ctx context.Context, name string) error {
	r := httpRequest{method: http.MethodDelete, path: []string{"pins", name}}
	return w.do(ctx, r, responseTimeout, decoder(nil))
}

// Files returns the paths of a version below dir, and the version's generation. An empty dir selects all paths.
func (w *Workspace) Files(ctx context.Context, version, dir string) ([]WorkspaceFile, int64, error) {
	q := url.Values{}
	set(q, "generation", version)
	set(q, "dir", dir)
	var list []WorkspaceFile
	var generation int64
	read := func(h http.Header, body io.Reader) (err error) {
		if generation, err = strconv.ParseInt(h.Get("Codefleet-Generation"), 10, 64); err != nil {
			return fmt.Errorf("parse Codefleet-Generation: %w", err)
		}
		return json.NewDecoder(body).Decode(&list)
	}
	err := w.do(ctx, httpRequest{path: []string{"files"}, query: q}, responseTimeout, read)
	return list, generation, err
}

// Open opens a file of a version at an offset in bytes; at the end of the file or beyond it, nothing can be read. The
// caller closes it. If the file does not exist, the error has the code "unknown_file".
func (w *Workspace) Open(ctx context.Context, version, path string, offset int64) (io.ReadCloser, error) {
	d, err := w.client.overHTTP()
	if err != nil {
		return nil, err
	}
	r, err := w.fileRequest(http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	if version != "" {
		r.query = url.Values{"generation": {version}}
	}
	if offset > 0 {
		r.header = http.Header{"Range": {fmt.Sprintf("bytes=%d-", offset)}}
	}
	content, err := d.open(ctx, w.inWorkspace(r))
	if e, ok := errors.AsType[*APIError](err); ok && e.Status == http.StatusRequestedRangeNotSatisfiable {
		return http.NoBody, nil
	}
	return content, err
}

// Put writes and commits one file. It replaces only the version with the given ETag. With NoState it only creates the
// file, and with an empty ETag it replaces any version. If the condition does not hold, the error has the code
// "precondition_failed". Once content was read, the request is not sent again, because content can be read only once.
func (w *Workspace) Put(ctx context.Context, path string, content io.Reader, etag string) (Commit, error) {
	var done Commit
	r, err := w.fileRequest(http.MethodPut, path)
	if err != nil {
		return done, err
	}
	r.header, r.once = http.Header{"Content-Type": {"application/octet-stream"}}, true
	body := &onceReader{from: content}
	r.stream, r.isSpent = func() io.Reader { return body }, body.begun.Load
	setCondition(r.header, etag)
	err = w.do(ctx, r, 0, decoder(&done))
	return done, err
}

// Remove removes a file, or a directory with its content. The request is not retried after a lost connection.
func (w *Workspace) Remove(ctx context.Context, path string) (Commit, error) {
	r, err := w.fileRequest(http.MethodDelete, path)
	if err != nil {
		return Commit{}, err
	}
	r.once = true
	return workspaceRequest[Commit](ctx, w, r)
}

// Archive opens a zip or tar archive of the paths of a version below dir. An empty dir selects all paths. The caller
// closes the archive. Reading an incomplete archive returns an error.
func (w *Workspace) Archive(ctx context.Context, version, dir, format string) (io.ReadCloser, error) {
	d, err := w.client.overHTTP()
	if err != nil {
		return nil, err
	}
	q := url.Values{"generation": {version}, "dir": {dir}, "format": {format}}
	return d.open(ctx, w.inWorkspace(httpRequest{path: []string{"archive"}, query: q}))
}

// setCondition sets the request header for an ETag, as Put describes.
func setCondition(h http.Header, etag string) {
	switch etag {
	case "":
	case NoState:
		h.Set("If-None-Match", "*")
	default:
		h.Set("If-Match", `"`+etag+`"`)
	}
}

// isBadPath reports whether p would change the path of a URL to which it is joined.
func isBadPath(p string) bool { return !fs.ValidPath(p) || p == "." }

func badPathCause(p string) string {
	if !utf8.ValidString(p) {
		return fmt.Sprintf("%q is not valid UTF-8", p)
	}
	return fmt.Sprintf("%q is empty or absolute, or contains ., .. or an empty name", p)
}

func (w *Workspace) fileRequest(method, path string) (httpRequest, error) {
	path = strings.TrimSuffix(path, "/")
	if isBadPath(path) {
		return httpRequest{}, &APIError{
			Status: http.StatusBadRequest, Code: errcode.BadPath, Path: "path",
			Message: "the path is not valid in a workspace", Cause: badPathCause(path),
			Hint: "use a relative path, such as data/in.csv",
		}
	}
	return httpRequest{method: method, path: append([]string{"files"}, strings.Split(path, "/")...)}, nil
}

// inWorkspace returns r with its path below that of the workspace.
func (w *Workspace) inWorkspace(r httpRequest) httpRequest {
	r.path = append([]string{"v1", "workspaces", w.name}, r.path...)
	return r
}

// workspacePost sends a POST request about the workspace, with body as JSON unless it is nil, and decodes the response.
func workspacePost[T any](ctx context.Context, w *Workspace, verb string, body any) (v T, err error) {
	// These requests have no time limit, because they may take long. A fork is not retried, because a second one fails,
	// nor is a restore, because a second one may take back later commits.
	r := httpRequest{method: http.MethodPost, path: []string{verb}, once: verb == "fork" || verb == "restore"}
	if body != nil {
		r.header = jsonHeader()
		if r.body, err = json.Marshal(body); err != nil {
			return v, err
		}
	}
	err = w.do(ctx, r, 0, decoder(&v))
	return v, err
}

// workspaceRequest sends a request about the workspace and decodes the response.
func workspaceRequest[T any](ctx context.Context, w *Workspace, r httpRequest) (v T, err error) {
	err = w.do(ctx, r, responseTimeout, decoder(&v))
	return v, err
}

// do is httpConn.do for a request about the workspace.
func (w *Workspace) do(
	ctx context.Context, r httpRequest, timeout time.Duration, read func(http.Header, io.Reader) error,
) error {
	d, err := w.client.overHTTP()
	if err != nil {
		return err
	}
	if isBadPath(w.name) || strings.Contains(w.name, "/") {
		return &APIError{
			Status: http.StatusBadRequest, Code: errcode.BadName,
			Message: fmt.Sprintf("%q is not a valid name of a workspace", w.name),
		}
	}
	return d.do(ctx, w.inWorkspace(r), timeout, read)
}
