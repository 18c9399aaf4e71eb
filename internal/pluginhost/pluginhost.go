// Package pluginhost invokes the hooks of a worker's plugins, in order and with time limits, and handles their panics
// and errors as package plugin documents. The key type is Set.
package pluginhost

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/strictjson"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/schemas"
)

// Set holds the plugins of a worker. A nil *Set has no plugins. It is safe for concurrent use.
type Set struct {
	log     *slog.Logger
	members []*member
}

// New returns a set of plugins. It returns an error for a plugin that has no unique name or no hook, or that has a
// method with the name of a hook but another signature, because such a method would silently be ignored.
func New(log *slog.Logger, list ...plugin.Plugin) (*Set, error) {
	s := &Set{log: log}
	names := map[string]bool{}
	for _, p := range list {
		if p == nil || p.Name() == "" || names[p.Name()] {
			return nil, fmt.Errorf("plugin %T needs a unique name", p)
		}
		names[p.Name()] = true
		if _, err := hooks(p); err != nil {
			return nil, fmt.Errorf("plugin %s: %w", p.Name(), err)
		}
		s.members = append(s.members, &member{plugin: p})
	}
	return s, nil
}

// Hooks describes the hooks of each plugin, in order, for a log: "name: validate, result".
func (s *Set) Hooks() (list []string) {
	for _, m := range s.all() {
		names, _ := hooks(m.plugin) // New has checked for errors
		list = append(list, m.plugin.Name()+": "+strings.Join(names, ", "))
	}
	return list
}

// hooks returns the names of a plugin's hooks, in the order in which a worker invokes them. It returns the errors that
// New documents.
func hooks(p plugin.Plugin) (names []string, err error) {
	_, selects := p.(plugin.Selector)
	_, generates := p.(plugin.Generator)
	_, validates := p.(plugin.Validator)
	_, calls := p.(plugin.Caller)
	_, results := p.(plugin.Resulter)
	for _, h := range []struct {
		method string
		has    bool
	}{{"Select", selects}, {"Generate", generates}, {"Validate", validates}, {"Call", calls}, {"Result", results}} {
		if h.has {
			names = append(names, strings.ToLower(h.method))
			continue
		}
		if _, named := reflect.TypeOf(p).MethodByName(h.method); named {
			return nil, fmt.Errorf("method %s does not have the signature of the hook", h.method)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%T has no hooks; perhaps *%[1]T has them", p)
	}
	return names, nil
}

func (s *Set) all() []*member {
	if s == nil {
		return nil
	}
	return s.members
}

// withHook yields the plugins that have the hook H, in order.
func withHook[H any](s *Set) iter.Seq2[*member, H] {
	return func(yield func(*member, H) bool) {
		for _, m := range s.all() {
			if p, ok := m.plugin.(H); ok && !yield(m, p) {
				return
			}
		}
	}
}

// anyHas reports whether a plugin has the hook H.
func anyHas[H any](s *Set) bool {
	return slices.ContainsFunc(s.all(), func(m *member) bool { _, ok := m.plugin.(H); return ok })
}

// HasSelector reports whether a plugin has the hook select.
func (s *Set) HasSelector() bool { return anyHas[plugin.Selector](s) }

// HasGenerator reports whether a plugin has the hook generate.
func (s *Set) HasGenerator() bool { return anyHas[plugin.Generator](s) }

// HasValidator reports whether a plugin has the hook validate.
func (s *Set) HasValidator() bool { return anyHas[plugin.Validator](s) }

// HasCaller reports whether a plugin has the hook call.
func (s *Set) HasCaller() bool { return anyHas[plugin.Caller](s) }

// HasResulter reports whether a plugin has the hook result.
func (s *Set) HasResulter() bool { return anyHas[plugin.Resulter](s) }

// Select returns the tools that the plugins select, without tools that are not available. A hook that fails changes
// nothing.
func (s *Set) Select(ctx context.Context, t plugin.Task, in plugin.Selection) []string {
	available := make(map[string]bool, len(in.Available))
	for _, tool := range in.Available {
		available[tool.ID()] = true
	}
	for m, p := range withHook[plugin.Selector](s) {
		given := plugin.Selection{Available: slices.Clone(in.Available), Selected: slices.Clone(in.Selected)}
		ids, err := run(ctx, s, m, "select", t, func(ctx context.Context) ([]string, error) {
			return p.Select(ctx, t, given)
		})
		if err != nil {
			continue // run has logged it
		}
		in.Selected = []string{}
		added, dropped, example := map[string]bool{}, 0, ""
		for _, id := range ids {
			switch {
			case !available[id]:
				dropped++
				example = cmp.Or(example, id)
			case !added[id]:
				added[id] = true
				in.Selected = append(in.Selected, id)
			}
		}
		if dropped > 0 {
			s.log.WarnContext(ctx, "plugin selected tools that the task may not use", "plugin", m.plugin.Name(),
				"task_id", t.ID, "tool", text.Truncate(example, maxText), "tools", dropped)
		}
	}
	return in.Selected
}

// ByPlugin is the value of generated_by in a result whose program a plugin wrote.
const ByPlugin = "plugin"

// Generate returns the program, and whether a plugin changed it. A hook that fails changes nothing.
func (s *Set) Generate(ctx context.Context, t plugin.Task, d plugin.Draft) (code string, changed bool) {
	for m, p := range withHook[plugin.Generator](s) {
		given := d
		given.Tools = slices.Clone(d.Tools)
		code, err := run(ctx, s, m, "generate", t, func(ctx context.Context) (string, error) {
			code, err := p.Generate(ctx, t, given)
			if err == nil && len(code) > maxProgram {
				err = fmt.Errorf("the program is %d bytes; the limit is %d", len(code), maxProgram)
			}
			return code, err
		})
		if err == nil && code != "" && code != d.Code { // after an error, which run has logged, the draft stays
			d.Code, d.By, changed = code, ByPlugin, true
		}
	}
	return d.Code, changed
}

// Validate returns the first refusal or error.
func (s *Set) Validate(ctx context.Context, t plugin.Task, in plugin.Program) (*plugin.Refusal, error) {
	for m, p := range withHook[plugin.Validator](s) {
		_, err := run(ctx, s, m, "validate", t, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, p.Validate(ctx, t, in)
		})
		if r, refused := errors.AsType[*plugin.Refusal](err); refused {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Call returns the arguments as the last plugin leaves them, or the first refusal or error.
func (s *Set) Call(ctx context.Context, t plugin.Task, c plugin.Call) (json.RawMessage, *plugin.Refusal, error) {
	for m, p := range withHook[plugin.Caller](s) {
		given := c
		given.Args = bytes.Clone(c.Args)
		args, err := run(ctx, s, m, "call", t, func(ctx context.Context) (json.RawMessage, error) {
			args, err := p.Call(ctx, t, given)
			switch {
			case err != nil || args == nil:
			case len(args) > maxArguments:
				err = fmt.Errorf("the arguments are %d bytes; the limit is %d", len(args), maxArguments)
			case !isObject(args):
				err = errors.New("the arguments are not a JSON object")
			}
			return args, err
		})
		if r, refused := errors.AsType[*plugin.Refusal](err); refused {
			return nil, r, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if args != nil {
			c.Args = args
		}
	}
	return c.Args, nil, nil
}

func isObject(args json.RawMessage) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(args, &object) == nil && object != nil
}

// Result returns the result as the last plugin leaves it. If it returns an error, no part of r may be published.
func (s *Set) Result(ctx context.Context, t plugin.Task, r plugin.Result) (plugin.Result, error) {
	for m, p := range withHook[plugin.Resulter](s) {
		given := r
		given.Value, given.Labels, given.Notes = bytes.Clone(r.Value), maps.Clone(r.Labels), slices.Clone(r.Notes)
		given.Checkpoint = bytes.Clone(r.Checkpoint)
		if given.Labels == nil {
			given.Labels = map[string]string{}
		}
		if r.Error != nil {
			e := *r.Error
			given.Error = &e
		}
		changed, err := run(ctx, s, m, "result", t, func(ctx context.Context) (plugin.Result, error) {
			err := p.Result(ctx, t, &given)
			if err == nil {
				err = sanitize(&given, r)
			}
			return given, err
		})
		if err != nil {
			return plugin.Result{}, err
		}
		r = changed
	}
	return r, nil
}

// Limits on what a hook returns. Sizes are in bytes.
const (
	maxProgram   = 256 << 10 // size of a program; the queue has the same limit
	maxArguments = 1 << 20   // size of a call's arguments; programs have the same limit
	maxAdded     = 1 << 20   // growth of a result
	maxDepth     = 64        // nesting of a result's value; programs have the same limit
	maxText      = 4 << 10   // size of each text of a refusal
)

// size returns the approximate number of bytes of a result in its JSON form.
func size(r plugin.Result) int {
	n := len(r.Value) + len(r.Checkpoint) + len(r.Output) + len(r.Stderr)
	for k, v := range r.Labels {
		n += len(k) + len(v)
	}
	for _, note := range r.Notes {
		n += len(note.Rule) + len(note.Level) + len(note.Message) + 64 // for the names of its fields
	}
	if e := r.Error; e != nil {
		n += len(e.Code) + len(e.Message) + len(e.Cause) + len(e.Hint)
	}
	return n
}

// checkCheckpoint returns an error if a hook has added a checkpoint, or changed it to an invalid one.
func checkCheckpoint(changed, original json.RawMessage) error {
	switch {
	case changed == nil:
		return nil
	case original == nil:
		return errors.New("a hook must not add a checkpoint")
	case len(changed) > schemas.MaxCheckpoint:
		return fmt.Errorf("the checkpoint is %d bytes; the limit is %d", len(changed), schemas.MaxCheckpoint)
	case !isObject(changed):
		return errors.New("the checkpoint is not a JSON object")
	}
	if err := strictjson.CheckDepth(changed, maxDepth); err != nil {
		return fmt.Errorf("the checkpoint: %w", err)
	}
	return nil
}

// errorCode matches the error codes that the schema of results permits.
var errorCode = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// sanitize undoes a change of the status, makes the output valid UTF-8, and sets the default levels of notes and line 0
// for negative lines. It returns an error if the changed result is too large, its value, checkpoint or error code is
// invalid, it has or lacks an error or a checkpoint against package plugin's rules, or a note has another level. What
// it accepts matches the schema of results, which is checked only after the commit.
func sanitize(changed *plugin.Result, original plugin.Result) error {
	if n, limit := size(*changed), size(original)+maxAdded; n > limit {
		return fmt.Errorf("the result is %d bytes; the limit is %d", n, limit)
	}
	changed.Status = original.Status
	changed.Output, changed.Stderr = strings.ToValidUTF8(changed.Output, "�"), strings.ToValidUTF8(changed.Stderr, "�")
	if len(changed.Value) == 0 {
		changed.Value = nil // null
	}
	if len(changed.Checkpoint) == 0 {
		changed.Checkpoint = nil
	}
	if err := checkCheckpoint(changed.Checkpoint, original.Checkpoint); err != nil {
		return err
	}
	if changed.Value != nil {
		if err := strictjson.CheckDepth(changed.Value, maxDepth); err != nil {
			return fmt.Errorf("the value: %w", err)
		}
	}
	if (changed.Error == nil) != (original.Error == nil) {
		return errors.New("a hook must not set or remove the error")
	}
	if changed.Error != nil {
		e := *changed.Error // the plugin may use its error for other results too
		if !errorCode.MatchString(e.Code) {
			return fmt.Errorf("invalid error code %q; want lower-case letters, digits and underscores, a letter first",
				text.Truncate(e.Code, maxText))
		}
		e.Line = max(0, e.Line)
		changed.Error = &e
	}
	changed.Notes = slices.Clone(changed.Notes)
	for i, n := range changed.Notes {
		changed.Notes[i].Line = max(0, n.Line)
		if n.Level == "" {
			changed.Notes[i].Level = "info"
		} else if n.Level != "info" && n.Level != "warning" {
			return fmt.Errorf("unknown level %q of a note; want info or warning", n.Level)
		}
	}
	return nil
}
