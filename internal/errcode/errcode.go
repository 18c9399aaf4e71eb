// Package errcode defines the fleet's error codes and the command line's exit codes.
//
// An error code is a stable word that callers branch on. It is in the body of an HTTP response, in the result of a
// task, and in the ToolError of a tool call. To add a code, add a constant in codes.go and a row in table.go, and
// render docs/errors.md with
//
//	go test ./internal/errcode -update
//
// The package creates no errors and imports no other package of this module, so that every package can import it.
package errcode

import (
	"net/http"
	"slices"
)

// Error describes one error code.
type Error struct {
	Code string
	// HTTP is the status of a response with this code. It is 0 if no HTTP request is refused with the code.
	HTTP int
	// Exit is the exit code of a command whose request is refused with this code. Zero selects the exit code of HTTP.
	Exit int
	// Task lists the statuses of tasks whose result has this code.
	Task []string
	// Tool reports whether a program can get the code in a ToolError.
	Tool bool
	// Client reports whether clients create the error themselves.
	Client bool
	// Meaning says what happened, and Action what the user can do. Both are sentences.
	Meaning, Action string
}

// Group lists the codes of one subject.
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

// HTTPStatus returns the status of a response with the code. It is 400 for a code without a status.
func HTTPStatus(code string) int {
	if e, ok := Lookup(code); ok && e.HTTP != 0 {
		return e.HTTP
	}
	return http.StatusBadRequest
}
