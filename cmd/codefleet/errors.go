package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"al.essio.dev/pkg/shellescape"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/text"
)

// retryTime is how long a command retries a request while the fleet does not respond. It is short because a user waits
// at a prompt. Commands that may start a fleet, such as run, have the client's default.
const retryTime = 2 * time.Second

// failure is an error with an exit code and a hint.
type failure struct {
	code      int    // exit code
	message   string // what failed; empty if the command has already printed it
	hint      string // what the user can do next
	err       error
	errorCode string // for -o json, if err is not a *client.APIError
}

func (f *failure) Error() string {
	if f.err == nil {
		return f.message
	}
	return f.message + ": " + inWords(f.err)
}

func (f *failure) Unwrap() error { return f.err }

// usage returns an error with the exit code for a wrong command line.
func usage(format string, args ...any) *failure {
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			args[i] = inWords(err)
		}
	}
	return &failure{code: errcode.ExitUsage, message: fmt.Sprintf(format, args...)}
}

// try sets the hint.
func (f *failure) try(hint string) *failure {
	f.hint = hint
	return f
}

// whereFleetFile is the hint about a wrong path of a fleet.json.
const whereFleetFile = "check the path: `codefleet up` writes the file into its data directory"

// noFleet adds an exit code and a hint to an error of finding a fleet or of client.New. It returns an APIError,
// an OptionsError and a failure unchanged, because these do not mean that there is no fleet. explain handles them.
func noFleet(err error) error {
	_, refused := errors.AsType[*client.APIError](err)
	_, explained := errors.AsType[*failure](err)
	if _, wrong := errors.AsType[*client.OptionsError](err); wrong || refused || explained {
		return err
	}
	f := &failure{
		code: errcode.ExitUnreachable, message: "find a fleet", err: err,
		hint: "start one with `codefleet up`, or name one with --fleet FILE or CODEFLEET_URL and CODEFLEET_TOKEN",
	}
	switch {
	case errors.Is(err, client.ErrNoFleet):
		f.message, f.err = "no fleet found", nil
	case errors.Is(err, fs.ErrNotExist):
		f.code = errcode.ExitUsage
		f.hint = whereFleetFile
	case errors.Is(err, jobs.ErrServerTooOld): // it responds
		f.hint = "upgrade the server to " + jobs.MinServer + " or newer"
	default: // the queue does not respond
		f.errorCode = errcode.Unavailable
	}
	return f
}

// statusError returns an error with the exit code for a task's status, or nil if that is ExitOK.
func statusError(s client.Status) error {
	if code := errcode.ExitOfTask(string(s)); code != errcode.ExitOK {
		return &failure{code: code}
	}
	return nil
}

// report prints an error and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return errcode.ExitOK
	}
	f := explain(err)
	if c := a.executed; c != nil && strings.HasPrefix(c.Use, c.Name()+" ID") && c.Flags().NArg() == 1 {
		f.hint = withID(f.hint, c.Flags().Arg(0))
	}
	f.hint = a.withFlags(f.hint)
	if a.executed != nil && inFlags(err) {
		f.hint = a.executed.CommandPath() + " --help"
	}
	if message := f.Error(); message != "" {
		if a.output == "json" {
			return a.reportJSON(f)
		}
		a.paint(a.stderr, red, "codefleet:")
		fmt.Fprintln(a.stderr, "", message)
		if f.hint != "" {
			fmt.Fprintln(a.stderr, "  try:", f.hint)
		}
	}
	return f.code
}

// inFlags reports whether all that is wrong in the settings comes from flags, which `config check` does not read.
func inFlags(err error) bool {
	e, ok := errors.AsType[*config.InvalidError](err)
	return ok && !slices.ContainsFunc(e.Problems, func(p config.Problem) bool {
		return !strings.HasPrefix(p.Where, "--")
	})
}

var commandInHint = regexp.MustCompile(`codefleet(?: [a-z][a-z-]*)+`)

var idInHint = regexp.MustCompile(`(codefleet(?: [a-z][a-z-]*)+) ID\b`)

// withID replaces ID in the commands of a hint with the id of a task. withFlags would separate the two.
func withID(hint, id string) string {
	return idInHint.ReplaceAllStringFunc(hint, func(command string) string {
		return strings.TrimSuffix(command, "ID") + shellescape.Quote(id)
	})
}

// withFlags adds flags of the executed command line to the commands in a hint, which would otherwise concern another
// configuration, fleet or workspace.
func (a *app) withFlags(hint string) string {
	if a.executed == nil {
		return hint
	}
	return commandInHint.ReplaceAllStringFunc(hint, func(line string) string {
		words := strings.Fields(line)[1:]
		command, rest, err := a.executed.Root().Find(words)
		if err != nil || !command.HasParent() {
			return line
		}
		out := append([]string{"codefleet"}, words[:len(words)-len(rest)]...)
		for _, name := range []string{"config", "fleet", "workspace"} {
			given, takes := a.executed.Flag(name), command.Flag(name)
			// The --workspace of `up` is a directory, and `up` looks for no fleet.
			isUp := a.executed.Name() == "up" || command.Name() == "up"
			if given == nil || !given.Changed || takes == nil || isUp && name != "config" ||
				strings.Contains(hint, "--"+name) {
				continue
			}
			out = append(out, "--"+name, shellescape.Quote(text.HideCredentials(given.Value.String())))
		}
		return strings.Join(append(out, rest...), " ")
	})
}

// errorOutput is what commands with -o json print on standard error if they fail.
type errorOutput struct {
	Error errorDetails `json:"error"`
}

type errorDetails struct {
	Message  string `json:"message"`
	Code     string `json:"code,omitempty"` // error code (docs/errors.md), if the fleet refused or does not respond
	Hint     string `json:"hint,omitempty"`
	ExitCode int    `json:"exit_code"`
}

// reportJSON prints an error as JSON, on one line, and returns the exit code.
func (a *app) reportJSON(f *failure) int {
	e := errorDetails{Message: f.Error(), Code: f.errorCode, Hint: f.hint, ExitCode: f.code}
	if refused, ok := errors.AsType[*client.APIError](f); ok {
		e.Code = refused.Code
	}
	data, err := json.Marshal(errorOutput{e})
	if err != nil {
		data = []byte(f.Error()) // encoding strings and numbers does not fail
	}
	fmt.Fprintln(a.stderr, string(text.UnescapeHTML(data)))
	return f.code
}

// explain adds an exit code and a hint to an error.
func explain(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*client.APIError](err); ok && e.Code == errcode.UnexpectedResponse {
		return &failure{
			code: errcode.ExitUnreachable, message: "no fleet at this address: " + e.Message, hint: e.Hint,
			errorCode: e.Code,
		}
	} else if ok {
		message, hint := "the fleet refused", cmp.Or(errcode.Next(e.Code).Command, e.Hint)
		if e.Status >= http.StatusInternalServerError {
			message = "the fleet could not do this"
		}
		if e.Code == errcode.HTTPOnly { // the client's own hint is for programs
			hint = useHTTP
		}
		return &failure{code: errcode.ExitOfRefusal(e.Code, e.Status), err: e, message: message, hint: hint}
	}
	if e, ok := errors.AsType[*client.OptionsError](err); ok {
		hint := "name a fleet with --fleet FILE, or with CODEFLEET_URL and CODEFLEET_TOKEN"
		if errors.Is(e, syscall.EISDIR) {
			hint = whereFleetFile
		}
		return usage("find a fleet: %v", e).try(hint)
	}
	if e, ok := errors.AsType[*config.InvalidError](err); ok {
		return usage("%v", e).try("codefleet config check")
	}
	if errors.Is(err, errInterrupted) || errors.Is(err, context.Canceled) {
		return &failure{code: errcode.ExitStopped, message: "interrupted"}
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok && e.Path == os.Stdout.Name() { // while output was streamed
		return &failure{code: errcode.ExitFailed, message: "write the output", err: e}
	}
	if e, ok := errors.AsType[*callError](err); ok {
		if isPathError(e.error) { // the command reads or writes a local file
			return explain(explainFileError(e.error))
		}
		return &failure{
			code: errcode.ExitUnreachable, message: "the fleet does not respond", err: e.error,
			hint:      "start one with `codefleet up`, or check the host with `codefleet doctor`",
			errorCode: errcode.Unavailable,
		}
	}
	if e, ok := errors.AsType[*runError](err); ok {
		return &failure{code: errcode.ExitFailed, message: inWords(e)}
	}
	return unknownInRoot(err) // the remaining errors are cobra's, such as an unknown command
}

// runError marks an error of a command that cobra has started.
type runError struct{ error }

func (e *runError) Unwrap() error { return e.error }

// callError marks an error of a command that uses the fleet. If explain does not recognise the error, the fleet did
// not respond.
type callError struct{ error }

func (e *callError) Unwrap() error { return e.error }

// markCall marks an error of a command's work with the fleet. It returns nil for nil.
func markCall(err error) error {
	if err == nil {
		return nil
	}
	return &callError{err}
}
