package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
)

// patience is how long a command retries when the fleet does not answer.
const patience = 2 * time.Second

// failure is an error with an exit code and what to do about it.
type failure struct {
	code    int
	message string // what happened, and why; empty: it was printed already
	hint    string // what to type next
	err     error
}

func (f *failure) Error() string {
	if f.err == nil {
		return f.message
	}
	return f.message + ": " + f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

func usage(format string, args ...any) error {
	return &failure{code: errcode.ExitUsage, message: fmt.Sprintf(format, args...)}
}

func noFleet(err error) error {
	f := &failure{
		code: errcode.ExitUnreachable, message: "find a fleet", err: err,
		hint: "start one with `codefleet up`, or name one with --fleet FILE or CODEFLEET_URL and CODEFLEET_TOKEN",
	}
	if errors.Is(err, client.ErrNoFleet) {
		f.message, f.err = "no fleet found", nil
	} else if errors.Is(err, fs.ErrNotExist) {
		f.hint = "check the path: `codefleet up` writes the file into its data directory"
	}
	return f
}

// statusError returns the error with the exit code for a task's status; nil for success.
func statusError(s client.Status) error {
	if code := errcode.ExitOfTask(string(s)); code != errcode.ExitOK {
		return &failure{code: code}
	}
	return nil
}

// report prints an error for a person and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return errcode.ExitOK
	}
	f := explain(err)
	if text := f.Error(); text != "" {
		fmt.Fprintln(a.stderr, "codefleet:", text)
		if f.hint != "" {
			fmt.Fprintln(a.stderr, "  try:", f.hint)
		}
	}
	return f.code
}

// commandHints are hints for codes whose hint from the fleet is meant for programs.
var commandHints = map[string]string{
	errcode.UnknownTask:     "codefleet tasks  (ended tasks are kept for some days)",
	errcode.Unauthorized:    "set CODEFLEET_TOKEN to a token of this fleet, or --fleet to its fleet.json",
	errcode.UnknownTool:     unknownHint,
	errcode.UnknownApproval: "codefleet approvals",
	errcode.UnknownVersion:  "codefleet workspace log  (lists the versions that are kept)",
}

// explain returns an error with its exit code and hint.
func explain(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*client.APIError](err); ok && e.Code == errcode.UnexpectedAnswer {
		return &failure{code: errcode.ExitUnreachable, message: "no fleet at this address: " + e.Message, hint: e.Hint}
	} else if ok {
		return &failure{
			code: errcode.ExitOfRefusal(e.Code, e.Status), err: e, message: "the fleet refused",
			hint: cmp.Or(commandHints[e.Code], e.Hint),
		}
	}
	if e, ok := errors.AsType[*config.InvalidError](err); ok {
		return &failure{code: errcode.ExitUsage, message: e.Error(), hint: "codefleet config show"}
	}
	if errors.Is(err, errInterrupted) || errors.Is(err, context.Canceled) {
		return &failure{code: errcode.ExitStopped, message: "interrupted"}
	}
	if e, ok := errors.AsType[*callError](err); ok {
		return &failure{
			code: errcode.ExitUnreachable, message: "the fleet does not answer", err: e.err,
			hint: "start one with `codefleet up`, or check the host with `codefleet doctor`",
		}
	}
	// Most other errors are cobra's: an unknown command, a wrong number of arguments. Those of a command that are not
	// marked get the same exit code.
	return &failure{code: errcode.ExitUsage, message: err.Error(), hint: "codefleet --help"}
}

// callError marks an error of a client's call. Unless it is an APIError, the fleet did not answer.
type callError struct{ err error }

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// markCall marks an error of a client's call, which tells it from errors of the command line.
func markCall(err error) error {
	if err == nil {
		return nil
	}
	return &callError{err}
}
