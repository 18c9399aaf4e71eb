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

// NoState is the ETag of a state file that is not there.
const NoState = "none"

// State is a state file of a workspace: an object that tasks find at /workspace/<File>, and that
// whoever may read the workspace can read and write without a task.
type State struct {
	Workspace string          `json:"workspace"` // empty: main
	File      string          `json:"file"`      // NAME.json or NAME.yaml, at the top or below state/; empty: the fleet's, state.json
	Exists    bool            `json:"exists"`
	Data      json.RawMessage `json:"data"` // an object; {} when there is none
	// ETag is the version of the content. SaveState with one replaces that version and no other;
	// with NoState it makes a file that is not there, and with none it replaces whatever there is.
	ETag       string `json:"etag"`
	Generation int64  `json:"generation,omitempty"` // of the workspace; after SaveState
}

// GetState returns a state file; workspace and file may be empty. One that is not there is no error:
// Exists is false, Data {} and ETag NoState. A name that leads out of the workspace is an *APIError
// with the code "bad_state_file". State is served over HTTP only.
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
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		resp, err := d.send(ctx, request)
		if err != nil {
			return s, err
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			return s, fmt.Errorf("read answer of %s: %w", d.base.Host, err)
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

// SaveState writes a state file and returns it with its new ETag. s.Data is a JSON object. An ETag
// that is not the one of what is there is an *APIError with the code "precondition_failed": get the
// state again, make the change to that, save it. A call with an ETag that was cut off may or may not
// have been done, and is not repeated; get the state to see.
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
	request.header, request.body = http.Header{"Content-Type": {"application/json"}}, s.Data
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
			Status: http.StatusBadRequest, Code: errcode.BadStateFile, Message: "this cannot be a state file",
			Cause: fmt.Sprintf("%q leads elsewhere", s.File), Path: "state_file",
			Hint: "state.json, or NAME.json or NAME.yaml at the top of the workspace or below state/",
		}
	}
	c.path = append(c.path, strings.Split(s.File, "/")...)
	return c, nil
}
