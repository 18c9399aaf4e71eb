package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
)

// NoState is the ETag of a state document that does not exist.
const NoState = "none"

// State is a state document of a workspace: a JSON object that programs find at /workspace/<File>.
type State struct {
	Workspace string          `json:"workspace"` // empty: main
	File      string          `json:"file"`      // as for GetState; empty: the fleet's default
	Exists    bool            `json:"exists"`
	Data      json.RawMessage `json:"data"` // an object; {} if the document does not exist
	// ETag is the version of the content. SaveState with an ETag replaces only that version, with NoState it
	// only creates the document, and with an empty one it replaces any version.
	ETag       string `json:"etag"`
	Generation int64  `json:"generation,omitempty"` // of the workspace; after SaveState
}

// GetState returns a state document; workspace and file may be empty. A document that does not exist is not
// an error: Exists is false, Data {} and ETag NoState. An invalid name is an error with the code
// "bad_state_file". Over NATS, every call fails with "http_only".
func (c *Client) GetState(ctx context.Context, workspace, file string) (State, error) {
	s := State{Workspace: cmp.Or(workspace, mainWorkspace), File: file, Data: json.RawMessage("{}"), ETag: NoState}
	d, err := c.overHTTP()
	if err != nil {
		return s, err
	}
	request, err := stateCall(http.MethodGet, s)
	if err != nil {
		return s, err
	}
	request.header = http.Header{"Accept": {"application/json"}}
	found, err := retry(ctx, d.retryFor, func() (State, error) {
		ctx, cancel := context.WithTimeout(ctx, responseTimeout)
		defer cancel()
		resp, err := d.send(ctx, request)
		if err != nil {
			return s, err
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			return s, fmt.Errorf("read response of %s: %w", d.base.Host, err)
		}
		s.Exists, s.Data, s.ETag = true, data, strings.Trim(resp.Header.Get("ETag"), `"`)
		s.File = cmp.Or(resp.Header.Get("Codefleet-State-File"), s.File)
		return s, nil
	})
	if e, ok := errors.AsType[*APIError](err); ok && e.Code == errcode.UnknownState {
		return s, nil
	}
	return found, err
}

// SaveState writes a state document, whose Data is a JSON object, and returns it with its new ETag. If the
// document has a version other than s.ETag, the error has the code "precondition_failed": get it again and
// repeat the change. With an ETag the request is not retried: after any other error, get the document to see
// whether it was saved.
func (c *Client) SaveState(ctx context.Context, s State) (State, error) {
	s.Workspace = cmp.Or(s.Workspace, mainWorkspace)
	d, err := c.overHTTP()
	if err != nil {
		return s, err
	}
	request, err := stateCall(http.MethodPut, s)
	if err != nil {
		return s, err
	}
	request.header, request.body = jsonHeader(), s.Data
	switch s.ETag {
	case "":
	case NoState:
		request.header.Set("If-None-Match", "*")
		request.once = true
	default:
		request.header.Set("If-Match", `"`+s.ETag+`"`)
		request.once = true
	}
	if err := d.json(ctx, &s, request); err != nil {
		return s, err
	}
	s.Exists = true
	return s, nil
}

func stateCall(method string, s State) (call, error) {
	c := call{method: method, path: []string{"v1", "state"}, query: url.Values{"workspace": {s.Workspace}}}
	if s.File == "" {
		return c, nil
	}
	if badPath(s.File) {
		return c, &APIError{
			Status:  http.StatusBadRequest,
			Code:    errcode.BadStateFile,
			Message: "this cannot be the name of a state document",
			Cause:   badPathCause(s.File),
			Path:    "state_file",
			Hint:    "use NAME.json or NAME.yaml, at the top of the workspace or below state/",
		}
	}
	c.path = append(c.path, strings.Split(s.File, "/")...)
	return c, nil
}
