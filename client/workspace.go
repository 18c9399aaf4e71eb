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

// Workspace is the files of one workspace and their history. Each commit is a generation, counted
// from 1; 0 stands for the newest. It is served over HTTP only: with a client over NATS every call is
// an *APIError with the code "http_only".
type Workspace struct {
	client *Client
	name   string
}

// Workspace returns the workspace of a name; empty is main. It makes no request, and one that nobody
// has written to is empty.
func (c *Client) Workspace(name string) *Workspace {
	return &Workspace{c, cmp.Or(name, mainWorkspace)}
}

// Name returns the workspace's name.
func (w *Workspace) Name() string { return w.name }

// overHTTP is the door that workspaces are reached through.
func (c *Client) overHTTP() (*httpDoor, error) {
	if d, ok := c.door.(*httpDoor); ok {
		return d, nil
	}
	return nil, httpOnly()
}

// WorkspaceInfo is what is known of a workspace without reading its files.
type WorkspaceInfo struct {
	Name       string    `json:"name"`
	Generation int64     `json:"generation"` // 0: nobody has written to it
	Commit     string    `json:"commit,omitempty"`
	Time       time.Time `json:"time,omitzero"` // of the newest commit
	Files      int       `json:"files"`         // files, directories and links
	Bytes      int64     `json:"bytes"`
}

// Commit is one version of a workspace.
type Commit struct {
	Generation int64     `json:"generation"`
	Commit     string    `json:"commit"` // random id
	Time       time.Time `json:"time"`
	TaskID     string    `json:"task_id,omitempty"` // of the task that made it; empty: it was none
	Attempt    int       `json:"attempt,omitempty"`
	Message    string    `json:"message,omitempty"`
	Changed    []string  `json:"changed"`       // paths, at most 100 of them
	Total      int       `json:"changed_total"` // how many paths
	Conflicts  []string  `json:"conflicts"`     // paths that two tasks changed, of which both versions are there
	NoChange   bool      `json:"no_change"`     // nothing was to be done, and no version was made
}

// PathChange is one difference between two versions.
type PathChange struct {
	Path  string `json:"path"`
	Op    string `json:"op"`    // added, removed, modified
	Bytes int64  `json:"bytes"` // size afterwards; of a removed path, before
}

// Pin is a version that is kept for good under a name.
type Pin struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
}

// CheckOptions says how much Check reads.
type CheckOptions struct {
	ReadData bool `json:"read_data"`      // content too, not only its index
	Part     int  `json:"part,omitempty"` // with ReadData: the Part-th of Of equal parts; 0: all
	Of       int  `json:"of,omitempty"`
}

// Checked is what Check found.
type Checked struct {
	Versions int      `json:"versions"`
	Packs    int      `json:"packs"`
	Read     int      `json:"read"`     // packs whose content was verified
	Problems []string `json:"problems"` // none: all is well
	Lost     []string `json:"lost"`     // paths of the newest version that cannot be read
}

// RepairOptions says how much Repair reads and does.
type RepairOptions struct {
	ReadData bool `json:"read_data,omitempty"` // verify all content, not only what is there and how large
	DryRun   bool `json:"dry_run,omitempty"`   // report, change nothing
}

// LostPath is a path whose content is gone.
type LostPath struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Older int64  `json:"older,omitempty"` // the newest generation that has it in a form that can be read; 0: none
}

// Repaired is what Repair found and did.
type Repaired struct {
	Commit    Commit     `json:"commit"`    // NoChange: the newest version could be read as it was
	Problems  []string   `json:"problems"`  // damaged objects
	Lost      []LostPath `json:"lost"`      // the new version is without them
	Unknown   []int64    `json:"unknown"`   // generations that are lost, and with them what only they changed
	Recovered []string   `json:"recovered"` // files of content that no name is known for
}

// Workspaces returns the workspaces of the caller's tenant, by name.
func (c *Client) Workspaces(ctx context.Context) ([]WorkspaceInfo, error) {
	d, err := c.overHTTP()
	if err != nil {
		return nil, err
	}
	var list []WorkspaceInfo
	return list, d.json(ctx, &list, call{path: []string{"v1", "workspaces"}})
}

// Info returns the newest generation and size of the workspace.
func (w *Workspace) Info(ctx context.Context) (WorkspaceInfo, error) {
	var info WorkspaceInfo
	return info, w.json(ctx, &info, call{})
}

// Delete removes the workspace with its history. Tasks that began before fail; later ones begin anew.
func (w *Workspace) Delete(ctx context.Context) error {
	return w.json(ctx, nil, call{method: http.MethodDelete})
}

// Log returns commits, the newest first, at most limit (0: 100, the most is 1000).
func (w *Workspace) Log(ctx context.Context, limit int) ([]Commit, error) {
	q := url.Values{}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var log []Commit
	return log, w.json(ctx, &log, call{path: []string{"log"}, query: q})
}

// Diff returns the paths that differ between two versions, each the number of a generation or the
// name of a pin; an empty to is the newest.
func (w *Workspace) Diff(ctx context.Context, from, to string) ([]PathChange, error) {
	var list []PathChange
	return list, w.json(ctx, &list, call{path: []string{"diff"}, query: url.Values{"from": {from}, "to": {to}}})
}

// Restore makes an older version, a generation or a pin, the newest again. What came between stays in
// the history.
func (w *Workspace) Restore(ctx context.Context, version, message string) (Commit, error) {
	var c Commit
	return c, w.post(ctx, &c, "restore", map[string]string{"generation": version, "message": message})
}

// Fork begins another workspace with a version of this one (empty: the newest). Nothing is copied. A
// workspace that is there already is an *APIError with the code "workspace_exists".
func (w *Workspace) Fork(ctx context.Context, version, to string) (Commit, error) {
	var c Commit
	return c, w.post(ctx, &c, "fork", map[string]string{"generation": version, "to": to})
}

// Check verifies that every version that is kept can be read.
func (w *Workspace) Check(ctx context.Context, o CheckOptions) (Checked, error) {
	var found Checked
	return found, w.post(ctx, &found, "check", o)
}

// Repair makes the newest version readable when objects of it are lost or damaged, as a new commit that
// has all that is still there. A workspace that is well stays as it is.
func (w *Workspace) Repair(ctx context.Context, o RepairOptions) (Repaired, error) {
	var done Repaired
	return done, w.post(ctx, &done, "repair", o)
}

// Mirrored is what a call of Mirror did.
type Mirrored struct {
	Generation int64    `json:"generation"` // that the mirror has
	Put        int      `json:"put"`        // files written
	Removed    int      `json:"removed"`    // objects removed
	Skipped    []string `json:"skipped"`    // the first paths whose names no object can have
}

// Mirror brings the mirror of the workspace, where the fleet keeps one (else an *APIError with the code
// "no_mirror"), to the newest version. Commits do so by themselves.
func (w *Workspace) Mirror(ctx context.Context) (Mirrored, error) {
	var done Mirrored
	return done, w.post(ctx, &done, "mirror", struct{}{})
}

// Pins returns the versions that are kept for good, the oldest first.
func (w *Workspace) Pins(ctx context.Context) ([]Pin, error) {
	var pins []Pin
	return pins, w.json(ctx, &pins, call{path: []string{"pins"}})
}

// Pin keeps a version (empty: the newest) for good under a name, which is no number.
func (w *Workspace) Pin(ctx context.Context, name, version string) (Pin, error) {
	body, err := json.Marshal(map[string]string{"generation": version})
	if err != nil {
		return Pin{}, err
	}
	var p Pin
	return p, w.json(ctx, &p, call{method: http.MethodPut, path: []string{"pins", name}, header: jsonHeader(), body: body})
}

// Unpin lets go of a version that was pinned.
func (w *Workspace) Unpin(ctx context.Context, name string) error {
	return w.json(ctx, nil, call{method: http.MethodDelete, path: []string{"pins", name}})
}

// Files returns the paths of a version (empty: the newest) below dir (empty: all), and its generation.
func (w *Workspace) Files(ctx context.Context, version, dir string) ([]WorkspaceFile, int64, error) {
	q := url.Values{}
	for name, v := range map[string]string{"generation": version, "dir": dir} {
		if v != "" {
			q.Set(name, v)
		}
	}
	var list []WorkspaceFile
	var generation int64
	err := w.do(ctx, call{path: []string{"files"}, query: q}, answerTime, func(h http.Header, body io.Reader) (err error) {
		if generation, err = strconv.ParseInt(h.Get("Codefleet-Generation"), 10, 64); err != nil {
			return fmt.Errorf("generation of the answer: %w", err)
		}
		return json.NewDecoder(body).Decode(&list)
	})
	return list, generation, err
}

// Open opens a file of a version (empty: the newest); the caller closes it. Offset skips so many
// bytes, which are not sent. A file that is not there is an *APIError with the code "unknown_file".
func (w *Workspace) Open(ctx context.Context, version, path string, offset int64) (io.ReadCloser, error) {
	d, err := w.client.overHTTP()
	if err != nil {
		return nil, err
	}
	c, err := w.fileCall(http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	if version != "" {
		c.query = url.Values{"generation": {version}}
	}
	if offset > 0 {
		c.header = http.Header{"Range": {fmt.Sprintf("bytes=%d-", offset)}}
	}
	resp, err := retry(ctx, d.retryFor, func() (*http.Response, error) { return d.send(ctx, w.at(c)) })
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Put writes one file. An ETag replaces that version of the file and no other, "none" makes a file
// that is not there, and an empty one replaces whatever there is; what does not hold is an *APIError
// with the code "precondition_failed". The call is not repeated: content is read once.
func (w *Workspace) Put(ctx context.Context, path string, content io.Reader, etag string) (Commit, error) {
	var done Commit
	c, err := w.fileCall(http.MethodPut, path)
	if err != nil {
		return done, err
	}
	c.header, c.once = http.Header{"Content-Type": {"application/octet-stream"}}, true
	c.stream = func() io.Reader { return io.NopCloser(content) }
	condition(c.header, etag)
	return done, w.do(ctx, c, 0, decoder(&done))
}

// Remove removes a file, or a directory with all below it.
func (w *Workspace) Remove(ctx context.Context, path string) (Commit, error) {
	var done Commit
	c, err := w.fileCall(http.MethodDelete, path)
	if err != nil {
		return done, err
	}
	c.once = true
	return done, w.json(ctx, &done, c)
}

// Archive opens a version (empty: the newest) below dir (empty: all) as a zip or tar file; the caller
// closes it. One that is cut off reads as an error.
func (w *Workspace) Archive(ctx context.Context, version, dir, format string) (io.ReadCloser, error) {
	d, err := w.client.overHTTP()
	if err != nil {
		return nil, err
	}
	c := w.at(call{path: []string{"archive"}, query: url.Values{"generation": {version}, "dir": {dir}, "format": {format}}})
	resp, err := retry(ctx, d.retryFor, func() (*http.Response, error) { return d.send(ctx, c) })
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// condition sets the header for an ETag.
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

// badPath reports whether joining p would make another address of it.
func badPath(p string) bool { return !fs.ValidPath(p) || p == "." }

func (w *Workspace) fileCall(method, path string) (call, error) {
	path = strings.TrimSuffix(path, "/")
	if badPath(path) {
		return call{}, &APIError{
			Status: http.StatusBadRequest, Code: errcode.BadPath, Message: "this path cannot be a file of a workspace", Path: "path",
			Cause: fmt.Sprintf("%q is empty, absolute, or has . or .. or an empty name in it", path), Hint: "a path is relative, as in data/in.csv",
		}
	}
	return call{method: method, path: append([]string{"files"}, strings.Split(path, "/")...)}, nil
}

// at is c at the workspace's address.
func (w *Workspace) at(c call) call {
	c.path = append([]string{"v1", "workspaces", w.name}, c.path...)
	return c
}

func (w *Workspace) post(ctx context.Context, v any, verb string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	// What takes long is not cut off, and what makes a commit twice is not done twice.
	c := call{method: http.MethodPost, path: []string{verb}, header: jsonHeader(), body: data, once: verb == "fork"}
	return w.do(ctx, c, 0, decoder(v))
}

func (w *Workspace) json(ctx context.Context, v any, c call) error {
	return w.do(ctx, c, answerTime, decoder(v))
}

// decoder reads an answer into v; nil: there is nothing to read.
func decoder(v any) func(http.Header, io.Reader) error {
	return func(_ http.Header, body io.Reader) error {
		if v == nil {
			return nil
		}
		return json.NewDecoder(body).Decode(v)
	}
}

// do sends c until it is answered, and lets read have the answer. limit bounds one time; 0: ctx does.
func (w *Workspace) do(ctx context.Context, c call, limit time.Duration, read func(http.Header, io.Reader) error) error {
	d, err := w.client.overHTTP()
	if err != nil {
		return err
	}
	if badPath(w.name) || strings.Contains(w.name, "/") {
		return &APIError{Status: http.StatusBadRequest, Code: errcode.BadName, Message: fmt.Sprintf("%q is not the name of a workspace", w.name)}
	}
	_, err = retry(ctx, d.retryFor, func() (struct{}, error) {
		ctx := ctx
		if limit > 0 {
			bounded, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			ctx = bounded
		}
		resp, err := d.send(ctx, w.at(c))
		if err != nil {
			return struct{}{}, err
		}
		defer resp.Body.Close()
		if err := read(resp.Header, resp.Body); err != nil {
			return struct{}{}, fmt.Errorf("read answer of %s: %w", d.base.Host, err)
		}
		return struct{}{}, nil
	})
	return err
}
