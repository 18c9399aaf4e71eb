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
	defaultTimeout = time.Minute // of a call, unless the tool requests another
	maxTries       = 8           // of a call that a process rejected; another process may accept it
)

// Call calls a tool that a process of the tenant serves. It is a broker.Upstream for all servers that are
// not the fleet's.
func (r *Registry) Call(ctx context.Context, q tools.Request) (tools.Result, error) {
	now, known := r.tool(q.Tenant, q.Server, q.Tool)
	wait := defaultTimeout
	if now.TimeoutS > 0 {
		wait = time.Duration(now.TimeoutS * float64(time.Second))
	}
	data, err := json.Marshal(tools.OfferRequest{Tenant: q.Tenant, Session: q.Session, Hash: q.Hash, Args: q.Args})
	if err != nil {
		return tools.Result{}, err
	}
	calling, stop := context.WithTimeoutCause(ctx, wait, errNoResponse)
	defer stop()
	problem := &tools.UpstreamError{Server: q.Server, Tool: q.Tool}
	for try := 1; ; try++ {
		answer, err := r.send(calling, q.Tenant, q.Server, q.Tool, data)
		switch {
		case err == nil:
			var a tools.OfferResponse
			if json.Unmarshal(answer, &a) != nil {
				problem.Reason, problem.Sent = tools.Protocol, true
				problem.Err = errors.New("the process that serves it sent an invalid response")
				return tools.Result{}, problem
			}
			if a.Code == tools.OfferChanged && try < maxTries {
				continue // during an update, another process may serve the expected definition
			}
			return toResult(a, problem, now, known)
		case errors.Is(err, ErrRetry) && try < maxTries:
			continue
		case errors.Is(err, ErrNotServed), errors.Is(err, ErrRetry):
			problem.Reason, problem.Err = tools.Down, fmt.Errorf("%w now", err)
		case errors.Is(context.Cause(calling), errNoResponse) && ctx.Err() == nil:
			problem.Reason, problem.Sent, problem.Err = tools.Timeout, true, fmt.Errorf("no answer in %s", wait)
		case ctx.Err() != nil:
			return tools.Result{}, context.Cause(ctx)
		default:
			problem.Reason, problem.Sent, problem.Err = tools.Lost, true, err
		}
		return tools.Result{}, problem
	}
}

var errNoResponse = errors.New("no answer")

// toResult converts the response of a process. now is the tool's current definition, if known.
func toResult(
	a tools.OfferResponse, problem *tools.UpstreamError, now tools.OfferedTool, known bool,
) (tools.Result, error) {
	switch {
	case a.Code == tools.OfferChanged:
		problem.Reason = tools.Drifted
		problem.Err = errors.New("the process that serves it now has another definition of it")
		if known {
			problem.Current = &now.Definition
		}
	case a.Code == tools.OfferLarge:
		problem.Reason, problem.Sent = tools.TooLarge, true
		problem.Err = errors.New("the answer is larger than one message")
	case a.Error != "" || a.Code != "":
		return tools.Result{IsError: true, Content: []tools.Content{{Type: "text", Text: a.Error}}}, nil
	case a.Value == nil:
		return tools.Result{}, nil
	default:
		return tools.Result{Structured: a.Value}, nil
	}
	return tools.Result{}, problem
}
