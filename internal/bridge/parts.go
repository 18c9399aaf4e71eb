package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/client"
)

// The parts of a task that has ended. Each is a resource, and get_task returns its text.
const (
	partOutput    = "output"
	partResult    = "result"
	partStderr    = "stderr"
	partError     = "error"
	partCode      = "code"
	partArtifacts = "artifacts"
	partChanges   = "changes"
	partFindings  = "findings"
)

var parts = []string{partOutput, partResult, partStderr, partError, partCode, partArtifacts, partChanges, partFindings}

// textOf returns a part of a task and its media type. ok reports whether the part exists.
func textOf(r *client.Result, part string) (data []byte, media string, ok bool) {
	encode := func(v any) ([]byte, string, bool) {
		data, err := marshal(v)
		return data, "application/json", err == nil
	}
	switch part {
	case partOutput:
		return []byte(r.Output), "text/plain", true
	case partStderr:
		return []byte(r.Stderr), "text/plain", true
	case partCode:
		return []byte(r.Code), "text/x-python", true
	case partResult:
		if len(r.Result) == 0 {
			return []byte("null"), "application/json", true
		}
		return r.Result, "application/json", true
	case partError:
		return encode(r.Error)
	case partArtifacts:
		return encode(r.Artifacts)
	case partChanges:
		return encode(r.Workspace)
	case partFindings:
		return encode(r.Guardrails)
	}
	return nil, "", false
}

// viewPart returns a part of a task that has ended, in the field output.
func (c *call) viewPart(ctx context.Context, id, part string, offset int) (*result, error) {
	r, err := c.fleet.Result(ctx, id)
	if err != nil {
		return nil, err
	}
	data, _, ok := textOf(&r, part)
	if !ok {
		return nil, unknownPart(part)
	}
	out := taskOut{TaskID: r.TaskID, Status: string(r.Status), Success: r.Status == client.Succeeded}
	out.addOutput(c.hidden(ctx, string(data)), offset, c.b.o.MaxOutput-jsonSize(out)-linksSize)
	if out.Truncated {
		out.Hint = fmt.Sprintf("call get_task with part %s and output_offset %d for more", part, out.NextOffset)
	}
	return &result{out: out}, nil
}

// knownPart reports whether part is empty, or the name of a part.
func knownPart(part string) bool { return part == "" || slices.Contains(parts, part) }

func unknownPart(part string) error {
	return badArgument("unknown part %q: want one of %s", part, strings.Join(parts, ", "))
}

// shares limit the sizes of a result's parts, in bytes of JSON. The program's result and output get the rest.
type shares struct {
	err, stderr, code, artifacts, changed, conflicts, findings, selected, approvals int
}

func sharesOf(limit int) shares {
	return shares{
		err: limit / 5, stderr: limit / 10, code: limit / 5, artifacts: limit / 10, changed: limit / 20,
		conflicts: limit / 20, findings: limit / 20, selected: limit / 20, approvals: limit / 2,
	}
}

// omit notes that a part of the task does not fit, and links to the whole part.
func (out *taskOut) omit(view *result, r *client.Result, part string) {
	data, media, _ := textOf(r, part)
	out.Truncated, out.Incomplete = true, append(out.Incomplete, part)
	view.links = append(view.links, resourceLink{resourceURI(out.TaskID, part), part, media, int64(len(data))})
}

// resultText returns the program's result, or nil for null, and whether it fits into budget bytes of JSON.
func resultText(r *client.Result, budget int) (json.RawMessage, bool) {
	if len(r.Result) == 0 || string(r.Result) == "null" {
		return nil, true
	}
	return r.Result, len(r.Result) <= budget
}
