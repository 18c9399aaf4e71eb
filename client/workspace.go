package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
)

const mainWorkspace = "main"

// Workspace is one workspace with its history. Generations of commits begin with 1. A version is given as a generation
// or the name of a pin; an empty version is the newest. Over NATS the error of every request has the code "http_only".
type Workspace struct {
	client *Client
	name   string

	// Progress, if it is set, is called while Pull and Push transfer content, with the bytes of files that are done and
	// the bytes in all. If files change during a Push, it begins again.
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

// WorkspaceInfo describes the newest version of a workspace.
type WorkspaceInfo struct {
	Name       string    `json:"name"`
	Generation int64     `json:"generation"` // 0 without commits
	Commit     string    `json:"commit,omitempty"`
	Time       time.Time `json:"time,omitzero"` // time of the newest commit
	Files      int       `json:"files"`         // number of files, directories and symbolic links
	Bytes      int64     `json:"bytes"`
}

// Commit is one version of a workspace.
type Commit struct {
	Generation int64     `json:"generation"`
	Commit     string    `json:"commit"` // a random id
	Time       time.Time `json:"time"`
	TaskID     string    `json:"task_id,omitempty"` // the task that made the commit; empty for other commits
	Attempt    int       `json:"attempt,omitempty"`
	Message    string    `json:"message,omitempty"`
	Changed    []string  `json:"changed"`       // the first 100 changed paths
	Total      int       `json:"changed_total"` // number of changed paths
	Conflicts  []string  `json:"conflicts"`     // paths that two commits changed; both versions are kept
	NoChange   bool      `json:"no_change"`     // nothing has changed, so no commit was made
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

// CheckOptions specify how much Check reads.
type CheckOptions struct {
	ReadData bool `json:"read_data"` // verify contents in addition to manifests and the sizes of packs
	// With ReadData, Check reads only part number Part, from 1, of Of equal parts. With 0 it reads all parts.
	Part int `json:"part,omitempty"`
	Of   int `json:"of,omitempty"`
}

// Checked is the report of Check.
type Checked struct {
	Versions int      `json:"versions"`
	Packs    int      `json:"packs"`
	Read     int      `json:"read"`     // packs whose content was verified
	Problems []string `json:"problems"` // empty if the workspace is not damaged
	Lost     []string `json:"lost"`     // paths of the newest version that cannot be read
}

// RepairOptions specify how much Repair reads, and whether it commits.
type RepairOptions struct {
	ReadData bool `json:"read_data,omitempty"` // verify all contents in addition to the sizes of packs
	DryRun   bool `json:"dry_run,omitempty"`   // do not commit
}

// LostPath is a path whose content is lost.
type LostPath struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Older int64  `json:"older,omitempty"` // the newest generation with readable content of the path; 0 if unknown
}

// Repaired is the report of Repair.
type Repaired struct {
	Commit          Commit     `json:"commit"`    // NoChange is set if the newest version is not damaged
	Problems        []string   `json:"problems"`  // damaged objects
	Lost            []LostPath `json:"lost"`      // paths that the new version does not have
	LostGenerations []int64    `json:"unknown"`   // generations whose changes are lost
	Recovered       []string   `json:"recovered"` // files with recovered content whose paths are lost
}

// Workspaces returns the workspaces of the caller's tenant, sorted by name.
func (c *Client) Workspaces(ctx context.Context) ([]WorkspaceInfo, error) {
	var list []WorkspaceInfo
	err := c.conn.get(ctx, &list, nil, "v1", "workspaces")
	return list, err
}

// Info returns the newest generation and size of the workspace.
func (w *Workspace) Info(ctx context.Context) (WorkspaceInfo, error) {
	var info WorkspaceInfo
	err := w.json(ctx, &info, httpRequest{})
	return info, err
}

// Delete deletes the workspace with its history. Tasks that have already started cannot commit; later tasks start with
// an empty workspace.
func (w *Workspace) Delete(ctx context.Context) error {
	return w.json(ctx, nil, httpRequest{method: http.MethodDelete})
}

// Log returns commits, the newest first. limit is from 1 to 1000; 0 selects 100.
func (w *Workspace) Log(ctx context.Context, limit int) ([]Commit, error) {
	q := url.Values{}
	setLimit(q, limit)
	var log []Commit
	err := w.json(ctx, &log, httpRequest{path: []string{"log"}, query: q})
	return log, err
}

// Diff returns the paths that differ between the versions from and to.
func (w *Workspace) Diff(ctx context.Context, from, to string) ([]PathChange, error) {
	var list []PathChange
	err := w.json(ctx, &list, httpRequest{path: []string{"diff"}, query: url.Values{"from": {from}, "to": {to}}})
	return list, err
}

// Restore commits an earlier version again. The commits in between stay in the history.
func (w *Workspace) Restore(ctx context.Context, version, message string) (Commit, error) {
	var c Commit
	err := w.post(ctx, &c, "restore", map[string]string{"generation": version, "message": message})
	return c, err
}

// Fork creates the workspace to from a version of this one, without copying content. If the workspace exists, the error
// has the code "workspace_exists". The request is not retried.
func (w *Workspace) Fork(ctx context.Context, version, to string) (Commit, error) {
	var c Commit
	err := w.post(ctx, &c, "fork", map[string]string{"generation": version, "to": to})
	return c, err
}

// Check verifies that all kept versions can be read.
func (w *Workspace) Check(ctx context.Context, o CheckOptions) (Checked, error) {
	var found Checked
	err := w.post(ctx, &found, "check", o)
	return found, err
}

// Repair commits what is readable of the newest version, if objects are lost or damaged. An intact workspace does not
// change.
func (w *Workspace) Repair(ctx context.Context, o RepairOptions) (Repaired, error) {
	var done Repaired
	err := w.post(ctx, &done, "repair", o)
	return done, err
}

// Mirrored is the report of Mirror.
type Mirrored struct {
	Generation int64    `json:"generation"` // the mirrored generation
	Put        int      `json:"put"`        // number of written files
	Removed    int      `json:"removed"`    // number of removed objects
	Skipped    []string `json:"skipped"`    // the first paths that are too long for an object key
}

// Mirror updates the mirror of the workspace to the newest version, as each commit does. If the fleet has no mirror,
// the error has the code "no_mirror".
func (w *Workspace) Mirror(ctx context.Context) (Mirrored, error) {
	var done Mirrored
	err := w.post(ctx, &done, "mirror", struct{}{})
	return done, err
}

// Pins returns the pins, the oldest first.
func (w *Workspace) Pins(ctx context.Context) ([]Pin, error) {
	var pins []Pin
	err := w.json(ctx, &pins, httpRequest{path: []string{"pins"}})
	return pins, err
}

// Pin pins a version under a name, which must not be a number.
func (w *Workspace) Pin(ctx context.Context, name, version string) (Pin, error) {
	body, err := json.Marshal(map[string]string{"generation": version})
	if err != nil {
		return Pin{}, err
	}
	var p Pin
	return p, w.json(ctx, &p,
		httpRequest{method: http.MethodPut, path: []string{"pins", name}, header: jsonHeader(), body: body})
}

// Unpin removes a pin.
func (w *Workspace) Unpin(ctx context.Context, name string) error {
	return w.json(ctx, nil, httpRequest{method: http.MethodDelete, path: []string{"pins", name}})
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

// Open opens a file of a version at an offset in bytes. The caller closes it. If the file does not exist, the error has
// the code "unknown_file".
func (w *Workspace) Open(ctx context.Context, version, path string, offset int64) (io.ReadCloser, error) {
	d, err := w.client.overHTTP()
	if err != nil {
		return nil, err
	}
	c, err := w.fileRequest(http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	if version != "" {
		c.query = url.Values{"generation": {version}}
	}
	if offset > 0 {
		c.header = http.Header{"Range": {fmt.Sprintf("bytes=%d-", offset)}}
	}
	return d.open(ctx, w.at(c))
}

// Put writes and commits one file. It replaces only the version with the given ETag. With NoState it only creates the
// file, and with an empty ETag it replaces any version. If the condition does not hold, the error has the code
// "precondition_failed". The request is not retried, because content can be read only once.
func (w *Workspace) Put(ctx context.Context, path string, content io.Reader, etag string) (Commit, error) {
	var done Commit
	c, err := w.fileRequest(http.MethodPut, path)
	if err != nil {
		return done, err
	}
	c.header, c.once = http.Header{"Content-Type": {"application/octet-stream"}}, true
	c.stream = func() io.Reader { return io.NopCloser(content) }
	condition(c.header, etag)
	err = w.do(ctx, c, 0, decoder(&done))
	return done, err
}

// Remove removes a file, or a directory with its content. The request is not retried after a lost connection.
func (w *Workspace) Remove(ctx context.Context, path string) (Commit, error) {
	var done Commit
	c, err := w.fileRequest(http.MethodDelete, path)
	if err != nil {
		return done, err
	}
	c.once = true
	err = w.json(ctx, &done, c)
	return done, err
}

// Archive opens a zip or tar archive of the paths of a version below dir. An empty dir selects all paths. The caller
// closes the archive. Reading an incomplete archive returns an error.
func (w *Workspace) Archive(ctx context.Context, version, dir, format string) (io.ReadCloser, error) {
	d, err := w.client.overHTTP()
	if err != nil {
		return nil, err
	}
	q := url.Values{"generation": {version}, "dir": {dir}, "format": {format}}
	return d.open(ctx, w.at(httpRequest{path: []string{"archive"}, query: q}))
}

// condition sets the request header for an ETag, as Put describes.
func condition(h http.Header, etag string) {
	switch etag {
	case "":
	case NoState:
		h.Set("If-None-Match", "*")
	default:
		h.Set("If-Match", `"`+etag+`"`)
	}
}

func jsonHeader() http.Header { return http.Header{"Content-Type": {"application/json"}} }

// badPath reports whether p would change the path of a URL to which it is joined.
func badPath(p string) bool { return !fs.ValidPath(p) || p == "." }

func badPathCause(p string) string {
	return fmt.Sprintf("%q is empty or absolute, or contains ., .. or an empty name", p)
}

func (w *Workspace) fileRequest(method, path string) (httpRequest, error) {
	path = strings.TrimSuffix(path, "/")
	if badPath(path) {
		return httpRequest{}, &APIError{
			Status: http.StatusBadRequest, Code: errcode.BadPath, Path: "path",
			Message: "the path is not valid in a workspace", Cause: badPathCause(path),
			Hint: "use a relative path, such as data/in.csv",
		}
	}
	return httpRequest{method: method, path: append([]string{"files"}, strings.Split(path, "/")...)}, nil
}

// at returns c with the path of the workspace.
func (w *Workspace) at(c httpRequest) httpRequest {
	c.path = append([]string{"v1", "workspaces", w.name}, c.path...)
	return c
}

func (w *Workspace) post(ctx context.Context, v any, verb string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	// These requests have no time limit, because they may take long. A fork is not retried, because a second one fails.
	c := httpRequest{method: http.MethodPost, path: []string{verb}, header: jsonHeader(), body: data, once: verb == "fork"}
	return w.do(ctx, c, 0, decoder(v))
}

func (w *Workspace) json(ctx context.Context, v any, c httpRequest) error {
	return w.do(ctx, c, responseTimeout, decoder(v))
}

// do is httpConn.do for a request about the workspace.
func (w *Workspace) do(
	ctx context.Context, c httpRequest, timeout time.Duration, read func(http.Header, io.Reader) error,
) error {
	d, err := w.client.overHTTP()
	if err != nil {
		return err
	}
	if badPath(w.name) || strings.Contains(w.name, "/") {
		return &APIError{
			Status: http.StatusBadRequest, Code: errcode.BadName,
			Message: fmt.Sprintf("%q is not a valid name of a workspace", w.name),
		}
	}
	return d.do(ctx, w.at(c), timeout, read)
}
