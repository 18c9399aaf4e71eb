// Package errcode is the one table of the fleet's error codes and of the command line's exit codes.
//
// An error code is the stable word for an error that programs branch on: in the body of an HTTP
// response, in the result of a task, and in the ToolError of a tool call. A new code is a constant in
// codes.go and a row in table.go; docs/errors.md is rendered from both by
//
//	go test ./internal/errcode -update
//
// The package creates no errors and imports nothing of ours, so that every package may use it.
package errcode

import (
	"net/http"
	"slices"
)

// Error describes one error code.
type Error struct {
	Code string
	// HTTP is the status of a response with this code; 0 if no HTTP request is refused with it.
	HTTP int
	// Exit is the exit code of a command whose request is refused with this code. 0: that of the HTTP status.
	Exit int
	// Task lists the statuses of tasks whose result has this code.
	Task []string
	// Tool reports whether a program can see the code in a ToolError.
	Tool bool
	// Client reports whether clients create the error themselves, without a request.
	Client bool
	// Meaning is what happened, Action what to do about it; one sentence each.
	Meaning, Action string
}

// Group is the codes that have one subject.
type Group struct {
	Title  string
	Errors []Error
}

// Lookup returns the row of a code.
func Lookup(code string) (Error, bool) {
	for _, g := range Table {
		if i := slices.IndexFunc(g.Errors, func(e Error) bool { return e.Code == code }); i >= 0 {
			return g.Errors[i], true
		}
	}
	return Error{}, false
}

// HTTPStatus returns the status of a response with the code: 400 for a code that has none.
func HTTPStatus(code string) int {
	if e, ok := Lookup(code); ok && e.HTTP != 0 {
		return e.HTTP
	}
	return http.StatusBadRequest
}
