package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

// awayFleet tells the user of a command that runs until Ctrl-C when the fleet goes away and when it comes back.
type awayFleet struct {
	*app
	away bool
}

// heals reports whether the error of a request may go away by itself, so that the command tries again. For the first
// such error it prints a line.
func (f *awayFleet) heals(err error) bool {
	e, refused := errors.AsType[*client.APIError](err)
	if refused && e.Code != errcode.UnexpectedResponse && e.Status < http.StatusInternalServerError &&
		e.Status != http.StatusTooManyRequests {
		return false
	}
	if _, ours := errors.AsType[*failure](err); ours { // such as a closed pipe
		return false
	}
	if !f.away {
		fmt.Fprintf(f.stderr, "codefleet: the fleet does not respond, trying again until Ctrl-C: %s\n",
			text.OneLine(err.Error()))
	}
	f.away = true
	return true
}

// back notes that the fleet responds.
func (f *awayFleet) back() {
	if f.away {
		fmt.Fprintln(f.stderr, "codefleet: the fleet responds again")
	}
	f.away = false
}
