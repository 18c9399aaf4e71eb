package workflow

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/expression"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

const (
	inlineValue = 512      // most bytes of a result that stays in the record
	inlineAll   = 32 << 10 // most bytes of all such results, and of the outputs of a run
)

// Load returns a value that is kept apart from a run's record, by its key.
type Load func(key string) (json.RawMessage, error)

// InputsKey is the key of the inputs, which are kept apart from the record.
const InputsKey = "inputs"

// ResultKey returns the key of the result of a step, or of one of its items.
func ResultKey(step string, item int) string {
	if item < 0 {
		return "result." + step
	}
	return fmt.Sprintf("result.%s.%d", step, item)
}

func itemsKey(step string) string { return "items." + step }

// keep stores a result: in the record if it is small, or else apart. Of a result that is too large, it keeps only the
// size.
func (m *machine) keep(key string, x *schemas.StepRun, result json.RawMessage) {
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	x.Result, x.ResultBytes, x.ResultKey = nil, 0, ""
	switch {
	case len(result) <= inlineValue && m.inlineSize()+len(result) <= inlineAll:
		x.Result = slices.Clone(result)
	case len(result) <= MaxValue:
		x.ResultBytes = len(result)
		m.values[key] = result
	default:
		x.ResultBytes = len(result)
	}
}

// own stores a value of this advance under a second key, which only this value has, and returns that key. It returns
// the empty key if this advance stores no value under key. Two processes may advance a run at the same time with
// different values, of which the first record counts: it names the second key, under which the other process stores
// nothing else. An earlier version of codefleet reads the value by the first key.
func (m *machine) own(key string) string {
	value, ok := m.values[key]
	if !ok {
		return ""
	}
	own := fmt.Sprintf("%s.%x", key, sha256.Sum256(value))
	m.values[own] = value
	return own
}

// inlineSize returns the bytes of the results in the record.
func (m *machine) inlineSize() (n int) {
	for _, s := range m.run.Steps {
		n += len(s.Result)
		for _, item := range s.Items {
			n += len(item.Result)
		}
	}
	return n
}

// setOutputs evaluates the outputs of the run, and sets them in its record.
func (m *machine) setOutputs(ctx context.Context) *schemas.WorkflowError {
	out := map[string]json.RawMessage{}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(m.outputs)) {
		value, err := m.fill(ctx, m.outputs[name], site{-1, -1})
		if err == nil {
			err = checkType(m.Definition.Outputs[name].Type, value)
		}
		if size += len(value); err == nil && size > inlineAll {
			err = fmt.Errorf("the outputs exceed %d bytes: pass large data in a file of the workspace", inlineAll)
		}
		if err != nil {
			return expressionError("output "+name, err)
		}
		out[name] = value
	}
	data, err := json.Marshal(out)
	if err != nil {
		return expressionError("outputs", err)
	}
	m.run.Outputs = data
	return nil
}

func expressionError(where string, err error) *schemas.WorkflowError {
	if known, ok := errors.AsType[*schemas.WorkflowError](err); ok {
		return &schemas.WorkflowError{Code: known.Code, Message: where + ": " + known.Message}
	}
	return &schemas.WorkflowError{Code: errcode.ExpressionFailed, Message: where + ": " + text.OneLine(err.Error())}
}

// site is where an expression is evaluated: in an item of a step, in a step if item is -1, or in the outputs if step
// is -1.
type site struct{ step, item int }

// fill returns the value of a template.
func (m *machine) fill(ctx context.Context, t *template, in site) (json.RawMessage, error) {
	return t.evaluate(ctx, func(ctx context.Context, e *expression.Expression) (json.RawMessage, error) {
		return m.value(ctx, e, in)
	})
}

// value evaluates an expression.
func (m *machine) value(
	ctx context.Context, e *expression.Expression, in site,
) (json.RawMessage, error) {
	variables, err := m.variables(e, in)
	if err != nil {
		return nil, err
	}
	value, err := e.Value(ctx, variables)
	if err == nil && len(value) > MaxValue {
		err = errTooLarge
	}
	return value, err
}

// variables returns the values of the variables that an expression uses.
func (m *machine) variables(e *expression.Expression, in site) (map[string]any, error) {
	out := map[string]any{"run": m.runVariable()}
	if members, complete := e.Members("inputs"); len(members) > 0 || !complete {
		inputs, err := m.read(InputsKey)
		if err != nil {
			return nil, err
		}
		if out["inputs"], err = expression.Decode(inputs); err != nil {
			return nil, err
		}
	}
	steps := map[string]any{}
	used, _ := e.Members("steps")
	for id, members := range used {
		x := m.run.Steps[m.index[id]]
		v := map[string]any{"status": string(x.Status), "result": nil, "error": nil}
		if x.Error != nil {
			v["error"] = map[string]any{"code": x.Error.Code, "message": x.Error.Message}
		}
		if e.UsesWhole("steps", id) || slices.Contains(members, "result") {
			raw, err := m.result(id, -1, &x)
			if err == nil {
				v["result"], err = expression.Decode(raw)
			}
			if err != nil {
				return nil, err
			}
		}
		steps[id] = v
	}
	out["steps"] = steps
	if in.item < 0 {
		return out, nil
	}
	item, err := m.item(in)
	if err != nil {
		return nil, err
	}
	out["index"] = int64(in.item)
	out["item"], err = expression.Decode(item)
	return out, err
}

// item returns the value of an item of a loop. The list that an earlier version of codefleet stored may be that of
// another answer than the record's, and too short: then the error is a *schemas.WorkflowError.
func (m *machine) item(in site) (json.RawMessage, error) {
	id := m.steps[in.step].ID
	list, err := m.read(cmp.Or(m.run.Steps[in.step].ItemsKey, itemsKey(id)))
	if err != nil {
		return nil, err
	}
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, err
	}
	if in.item >= len(items) {
		return nil, &schemas.WorkflowError{
			Code: errcode.ExpressionFailed,
			Message: fmt.Sprintf("the stored list of the loop %s has %d items, so it has no item %d: two answers or "+
				"events came at the same time, and an earlier version stored the list of the other one: "+
				"start the run again", id, len(items), in.item),
		}
	}
	return items[in.item], nil
}

func (m *machine) runVariable() map[string]any {
	status, failure := "running", any(nil)
	if m.run.Stopping != "" {
		status = string(m.run.Stopping)
	} else if m.run.Finishing {
		status = string(schemas.WorkflowSucceeded)
	}
	if e := m.run.Error; e != nil {
		failure = map[string]any{"code": e.Code, "message": e.Message, "step": e.Step}
	}
	return map[string]any{
		"id": m.run.RunID, "name": m.run.Name, "workspace": m.run.Workspace, "status": status, "error": failure,
	}
}

// result returns the result of a step or an item.
func (m *machine) result(id string, item int, x *schemas.StepRun) (json.RawMessage, error) {
	switch {
	case x.Result != nil:
		return x.Result, nil
	case x.ResultBytes == 0:
		return json.RawMessage("null"), nil
	case x.ResultBytes > MaxValue:
		return nil, &schemas.WorkflowError{
			Code: errcode.StepResultTooLarge,
			Message: fmt.Sprintf("the result of step %s is %d bytes, and a workflow passes on at most %d: "+
				"write large data into a file of the workspace", id, x.ResultBytes, MaxValue),
		}
	}
	return m.read(cmp.Or(x.ResultKey, ResultKey(id, item)))
}

// read returns a value that is kept apart from the record.
func (m *machine) read(key string) (json.RawMessage, error) {
	if value, ok := m.values[key]; ok {
		return value, nil
	}
	value, err := m.load(key)
	if err != nil {
		m.loadErr = err
	}
	return value, err
}
