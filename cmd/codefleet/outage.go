package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

// outage is for commands that go on while the fleet does not respond. It tells the user when requests begin to fail,
// and when they succeed again.
type outage struct {
	*app
	ongoing bool
}

// retryable reports whether the error of a request may be temporary, so that the command tries again. It prints a line
// for the first such error of an outage.
func (o *outage) retryable(err error) bool {
	e, isAPI := errors.AsType[*client.APIError](err)
	if isAPI && e.Code != errcode.UnexpectedResponse && e.Status < http.StatusInternalServerError &&
		e.Status != http.StatusTooManyRequests {
		return false
	}
	if _, ours := errors.AsType[*failure](err); ours { // such as a closed pipe
		return false
	}
	if !o.ongoing {
		fmt.Fprintf(o.stderr, "codefleet: the request failed; trying again until Ctrl-C: %s\n",
			text.OneLine(err.Error()))
	}
	o.ongoing = true
	return true
}

// end notes that a request succeeded.
func (o *outage) end() {
	if o.ongoing {
		fmt.Fprintln(o.stderr, "codefleet: requests succeed again")
	}
	o.ongoing = false
}
