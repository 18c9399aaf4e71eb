package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
)

// NoState is the ETag of a state document that does not exist.
const NoState = "none"

// State is a state document of a workspace. Programs find it at /workspace/<File>. Its name ends in
// .json or .yaml, and determines the format.
type State struct {
	Workspace string          `json:"workspace"` // empty selects main
	File      string          `json:"file"`      // empty selects the fleet's default document
	Exists    bool            `json:"exists"`
	Data      json.RawMessage `json:"data"` // an object; {} if the document does not exist
	// ETag is the version of the content. SaveState replaces only this version. With NoState it only creates the
	// document, and with an empty ETag it replaces any version.
	ETag       string `json:"etag"`
	Generation int64  `json:"generation,omitempty"` // the workspace's generation; set by SaveState
}

// GetState returns a state document. An empty workspace or file selects the default. A document that does not exist is
// not an error: Exists is false, Data is {} and ETag is NoState. For an invalid name the error has the code
// "bad_state_file". Over NATS, it fails with the code "http_only", as does SaveState.
func (c *Client) GetState(ctx context.Context, workspace, file string) (State, error) {
	s := State{Workspace: cmp.Or(workspace, mainWorkspace), File: file, Data: json.RawMessage("{}"), ETag: NoState}
	d, err := c.overHTTP()
	if err != nil {
		return s, err
	}
	req, err := stateRequest(http.MethodGet, s)
	if err != nil {
		return s, err
	}
	req.header = http.Header{"Accept": {"application/json"}}
	err = d.do(ctx, req, responseTimeout, func(h http.Header, body io.Reader) error {
		data, err := io.ReadAll(body)
		if err == nil {
			s.Exists, s.Data, s.ETag = true, data, strings.Trim(h.Get("ETag"), `"`)
			s.File = cmp.Or(h.Get("Codefleet-State-File"), s.File)
		}
		return err
	})
	if e, ok := errors.AsType[*APIError](err); ok && e.Code == errcode.UnknownState {
		return s, nil
	}
	return s, err
}

// SaveState writes a state document, whose Data is a JSON object, and returns it with its new ETag. If the document has
// a version other than s.ETag, the error has the code "state_conflict": get the document again and repeat the
// change. With an ETag the request is not retried: after any other error, get the document to see whether it was saved.
func (c *Client) SaveState(ctx context.Context, s State) (State, error) {
	s.Workspace = cmp.Or(s.Workspace, mainWorkspace)
	d, err := c.overHTTP()
	if err != nil {
		return s, err
	}
	req, err := stateRequest(http.MethodPut, s)
	if err != nil {
		return s, err
	}
	req.header, req.body, req.once = jsonHeader(), s.Data, s.ETag != ""
	setCondition(req.header, s.ETag)
	if err := d.do(ctx, req, responseTimeout, decoder(&s)); err != nil {
		return s, err
	}
	s.Exists = true
	return s, nil
}

func stateRequest(method string, s State) (httpRequest, error) {
	r := httpRequest{method: method, path: []string{"v1", "state"}, query: url.Values{"workspace": {s.Workspace}}}
	if s.File == "" {
		return r, nil
	}
	if isBadPath(s.File) {
		return r, &APIError{
			Status: http.StatusBadRequest, Code: errcode.BadStateFile, Path: "state_file",
			Message: "the name is not valid for a state document", Cause: badPathCause(s.File),
			Hint: "use NAME.json or NAME.yaml, at the top of the workspace or below state/",
		}
	}
	r.path = append(r.path, strings.Split(s.File, "/")...)
	return r, nil
}
