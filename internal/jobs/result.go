package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Bounds of lists and maps that a slim result keeps, because they are usually small.
const (
	slimTools      = 100      // selected tools
	slimLabelBytes = 64 << 10 // size of the labels; a larger map is left out
)

// slim returns a copy of r that always fits a record. The whole result is at ref. slim leaves out the fields
// that are usually large and bounds the others.
func slim(r *schemas.Result, ref string) *schemas.Result {
	s := *r
	s.ResultRef = ref
	s.Result, s.Checkpoint, s.Output, s.Stderr, s.Code = nil, nil, "", "", ""
	s.Guardrails, s.Egress, s.Artifacts, s.Tools.Calls = nil, nil, nil, nil
	s.Tools.Selected = s.Tools.Selected[:min(slimTools, len(s.Tools.Selected))]
	s.Workspace.Changed, s.Workspace.Conflicts = nil, nil
	labelBytes := 0
	for k, v := range s.Labels {
		labelBytes += len(k) + len(v)
	}
	if labelBytes > slimLabelBytes {
		s.Labels = nil
	}
	s.Tools.Degraded = text.Truncate(s.Tools.Degraded, maxText)
	if s.Error != nil {
		e := *s.Error
		e.Message, e.Cause = text.Truncate(e.Message, maxText), text.Truncate(e.Cause, maxText)
		e.Hint = text.Truncate(e.Hint, maxText)
		s.Error = &e
	}
	return &s
}

// withoutRef returns a copy of a slim result without a reference to the whole one, and with a finding that says why.
func withoutRef(r *schemas.Result, why string) *schemas.Result {
	s := *r
	s.ResultRef = ""
	s.Guardrails = append(slices.Clone(r.Guardrails), schemas.Finding{
		Rule: "result", Level: "warning",
		Message: "value, output, program and lists of this result are no longer kept: " + why,
	})
	return &s
}

func checkResult(res *schemas.Result) error {
	if !res.Status.Terminal() {
		return fmt.Errorf("status %q is not terminal", res.Status)
	}
	data, err := json.Marshal(res)
	if err != nil {
		return err
	}
	return schemas.Validate(schemas.ResultV1, data)
}

func milliseconds(d time.Duration) float64 { return max(0, float64(d.Microseconds())/1000) }

func errorCancelled() *schemas.Error {
	return &schemas.Error{Code: errcode.Cancelled, Message: "the task was cancelled"}
}

func errorExpired() *schemas.Error {
	return &schemas.Error{Code: errcode.Expired, Message: "the task's expirytime passed before it ended"}
}

func errorText(e *schemas.Error) string {
	if e == nil {
		return ""
	}
	return e.Error()
}
