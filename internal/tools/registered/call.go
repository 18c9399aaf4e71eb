package registered

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/tools"
)

const (
	defaultTimeout = time.Minute // per call, unless the tool requests another
	maxTries       = 8           // per call: if a process rejects it, another one may accept it
)

// Call calls a tool that one of the tenant's processes serves. As a broker.Upstream, it serves all servers that do not
// belong to the fleet.
func (r *Registry) Call(ctx context.Context, q tools.Request) (tools.Result, error) {
	_, offered := r.current(q.Tenant)
	wait := defaultTimeout
	if seconds := offered[q.Server+"/"+q.Tool].TimeoutS; seconds > 0 {
		wait = time.Duration(seconds * float64(time.Second))
	}
	data, err := json.Marshal(tools.OfferedCall{Tenant: q.Tenant, Session: q.Session, Hash: q.Hash, Args: q.Args})
	if err != nil {
		return tools.Result{}, err
	}
	calling, stop := context.WithTimeoutCause(ctx, wait, errNoResponse)
	defer stop()
	problem := &tools.UpstreamError{Server: q.Server}
	for try := 1; ; try++ {
		reply, err := r.send(calling, q.Tenant, q.Server, q.Tool, data)
		switch {
		case err == nil:
			var response tools.OfferedResponse
			if json.Unmarshal(reply, &response) != nil {
				problem.Reason, problem.Sent = tools.Protocol, true
				problem.Err = errors.New("the process that serves the tool sent an invalid response")
				return tools.Result{}, problem
			}
			if response.Code == tools.OfferChanged && try < maxTries {
				continue // during an update, another process may serve the expected definition
			}
			return toResult(response, problem)
		case errors.Is(err, ErrNotBegun) && try < maxTries:
			continue
		case errors.Is(err, ErrNotServed):
			problem.Reason, problem.Err = tools.Down, ErrNotServed
			if _, registered := offered[q.Server+"/"+q.Tool]; !registered {
				problem.Err = fmt.Errorf("%w, and the worker's setting mcp_servers lists no server %q", ErrNotServed,
					q.Server)
			}
		case errors.Is(err, ErrNotBegun):
			problem.Reason, problem.Err = tools.Down, err
		case errors.Is(context.Cause(calling), errNoResponse) && ctx.Err() == nil:
			problem.Reason, problem.Sent, problem.Err = tools.Timeout, true, fmt.Errorf("no response within %s", wait)
		case ctx.Err() != nil:
			return tools.Result{}, context.Cause(ctx)
		default:
			problem.Reason, problem.Sent, problem.Err = tools.Lost, true, err
		}
		return tools.Result{}, problem
	}
}

var errNoResponse = errors.New("no response")

// toResult converts a process's response. If the process did not return the tool's result, toResult sets the reason in
// problem and returns it.
func toResult(response tools.OfferedResponse, problem *tools.UpstreamError) (tools.Result, error) {
	switch {
	case response.Code == tools.OfferChanged:
		problem.Reason = tools.Drifted
		problem.Err = errors.New("the process that serves the tool has a different definition of it")
	case response.Code == tools.OfferLarge:
		problem.Reason, problem.Sent = tools.TooLarge, true
		problem.Err = errors.New("the result is larger than one message")
	case response.Error != "" || response.Code != "":
		return tools.Result{IsError: true, Content: []tools.Content{{Type: "text", Text: response.Error}}}, nil
	case response.Value == nil:
		return tools.Result{}, nil
	default:
		return tools.Result{Structured: response.Value}, nil
	}
	return tools.Result{}, problem
}
