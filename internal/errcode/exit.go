package errcode

import (
	"net/http"
	"slices"
)

// Exit codes of the command line.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitRefused     = 4
	ExitStopped     = 5
	ExitKilled      = 130
)

// Exit describes one exit code.
type Exit struct {
	Code    int
	Meaning string
	Task    []string // statuses of tasks that end a command with this code
}

// Exits describes the exit codes, in ascending order.
var Exits = []Exit{
	{ExitOK, "The command succeeded; a task that it waited for succeeded.", []string{"succeeded"}},
	{ExitFailed, "The command or the task failed, or the task was dead-lettered.", []string{"failed", "dead"}},
	{ExitUsage, "The command line, the configuration, a file or an identifier is wrong.", nil},
	{ExitUnreachable, "No fleet responds at the address, or the fleet is unavailable.", nil},
	{ExitRefused, "The fleet refused the request or the task.", []string{"blocked"}},
	{
		ExitStopped, "The task timed out, expired or was cancelled, or the command was interrupted.",
		[]string{"timeout", "cancelled", "expired"},
	},
	{ExitKilled, "A second signal ended the command at once.", nil},
}

// ExitOfTask returns the exit code for a task with the given status. It is ExitOK for a task that has not ended.
func ExitOfTask(status string) int {
	for _, e := range Exits {
		if slices.Contains(e.Task, status) {
			return e.Code
		}
	}
	return ExitOK
}

// ExitOfRefusal returns the exit code for a request that the fleet refused with an error code and an HTTP status. A
// code that is not in the table, for example a newer fleet's, has the exit code of its HTTP status.
func ExitOfRefusal(code string, status int) int {
	if e, ok := Lookup(code); ok && e.Exit != 0 {
		return e.Exit
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusPreconditionFailed:
		return ExitRefused
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return ExitUsage
	}
	return ExitUnreachable
}
