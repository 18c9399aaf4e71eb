package pluginhost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/schemas"
)

// Plugins that implement one hook with a function, and invalid plugins.
type (
	selector  func(context.Context, plugin.Selection) ([]string, error)
	generator func(context.Context, plugin.Draft) (string, error)
	validator func(context.Context) error
	caller    func(context.Context, plugin.Call) (json.RawMessage, error)
	resulter  func(context.Context, *plugin.Result) error
	misspelt  struct{}
	hookless  struct{}
	second    struct{ validator }
)

func (selector) Name() string  { return "selector" }
func (generator) Name() string { return "generator" }
func (validator) Name() string { return "validator" }
func (caller) Name() string    { return "caller" }
func (resulter) Name() string  { return "resulter" }
func (misspelt) Name() string  { return "misspelt" }
func (hookless) Name() string  { return "hookless" }
func (second) Name() string    { return "second" }

func (f selector) Select(ctx context.Context, _ plugin.Task, s plugin.Selection) ([]string, error) {
	return f(ctx, s)
}

func (f generator) Generate(ctx context.Context, _ plugin.Task, d plugin.Draft) (string, error) {
	return f(ctx, d)
}

func (f validator) Validate(ctx context.Context, _ plugin.Task, _ plugin.Program) error {
	return f(ctx)
}

func (f caller) Call(ctx context.Context, _ plugin.Task, c plugin.Call) (json.RawMessage, error) {
	return f(ctx, c)
}

func (f resulter) Result(ctx context.Context, _ plugin.Task, r *plugin.Result) error {
	return f(ctx, r)
}
func (misspelt) Validate(plugin.Program) error { return nil }

func set(t *testing.T, log *bytes.Buffer, list ...plugin.Plugin) *Set {
	t.Helper()
	s, err := New(slog.New(slog.NewTextHandler(log, nil)), list...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNew(t *testing.T) {
	allow := validator(func(context.Context) error { return nil })
	for name, c := range map[string]struct {
		list []plugin.Plugin
		want string
	}{
		"twice": {[]plugin.Plugin{allow, allow}, "needs a unique name"},
		"nil":   {[]plugin.Plugin{nil}, "needs a unique name"},
		"signature": {
			[]plugin.Plugin{misspelt{}},
			"plugin misspelt: method Validate does not have the signature of the hook",
		},
		"no hook": {[]plugin.Plugin{hookless{}}, "plugin hookless: pluginhost.hookless has no hooks"},
		"two":     {[]plugin.Plugin{allow, second{allow}}, ""},
	} {
		_, err := New(slog.New(slog.DiscardHandler), c.list...)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: New = %v, want %q", name, err, c.want)
		}
	}
	var log bytes.Buffer
	s := set(t, &log, allow, second{allow})
	if diff := cmp.Diff([]string{"validator: validate", "second: validate"}, s.Hooks()); diff != "" {
		t.Error(diff)
	}
	if !s.HasValidator() || s.HasCaller() || s.HasResulter() || s.HasSelector() || s.HasGenerator() ||
		(*Set)(nil).HasValidator() {
		t.Error("the hooks of the set differ, want those of its plugins")
	}
}

// TestErrors checks that the error of a hook says how the hook failed, and that only the log has the plugin's text.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			hook         validator
			want, logged string
			after        time.Duration
		}{
			"error": {func(context.Context) error { return errors.New("key 4711") }, "hook failed", "key 4711", 0},
			"panic": {func(context.Context) error { panic("key 4711") }, "hook panicked", "key 4711", 0},
			"exit": {
				func(context.Context) error { runtime.Goexit(); return nil },
				"hook ended its goroutine", "ended its goroutine", 0,
			},
			"late": {
				func(ctx context.Context) error { <-ctx.Done(); return nil }, "hook exceeded its time limit",
				"exceeded", plugin.Deadline,
			},
			"typed nil": {func(context.Context) error { var r *plugin.Refusal; return r }, "hook failed", "", 0},
		} {
			var log bytes.Buffer
			s := set(t, &log, c.hook)
			start := time.Now()
			refusal, err := s.Validate(t.Context(), plugin.Task{ID: "t1"}, plugin.Program{})
			if refusal != nil || err == nil || !strings.Contains(err.Error(), "plugin validator: validate: "+c.want) ||
				strings.Contains(err.Error(), "4711") {
				t.Errorf("%s: Validate = %v, %v, want %q", name, refusal, err, c.want)
			}
			if !strings.Contains(log.String(), c.logged) || !strings.Contains(log.String(), "task_id=t1") {
				t.Errorf("%s: log %s, want %q and the task", name, log.String(), c.logged)
			}
			if got := time.Since(start); got != c.after {
				t.Errorf("%s: after %v, want %v", name, got, c.after)
			}
		}
	})
}

// TestStuck checks that a plugin whose hooks never return is no longer invoked once it holds maxRunning goroutines.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		var log bytes.Buffer
		s := set(t, &log, validator(func(context.Context) error { <-free; return nil }))
		for range maxRunning {
			if _, err := s.Validate(t.Context(), plugin.Task{}, plugin.Program{}); !errors.Is(err, errTimeout) {
				t.Fatalf("Validate = %v, want %v", err, errTimeout)
			}
		}
		start := time.Now()
		if _, err := s.Validate(t.Context(), plugin.Task{}, plugin.Program{}); !errors.Is(err, errFull) ||
			time.Since(start) != 0 {
			t.Errorf("Validate = %v after %v, want %v at once", err, time.Since(start), errFull)
		}
		close(free)
		synctest.Wait()
		if _, err := s.Validate(t.Context(), plugin.Task{}, plugin.Program{}); err != nil {
			t.Errorf("Validate = %v after the hooks have returned, want nil", err)
		}
	})
}

func TestRefusal(t *testing.T) {
	var log bytes.Buffer
	no := &plugin.Refusal{Code: "no", Message: "not here"}
	s := set(t, &log, validator(func(context.Context) error { return no }),
		second{func(context.Context) error { t.Error("invoked after a refusal, want no call"); return nil }})
	if got, err := s.Validate(t.Context(), plugin.Task{}, plugin.Program{}); got == nil || *got != *no || err != nil {
		t.Errorf("Validate = %v, %v, want %v", got, err, no)
	}
	if log.Len() > 0 {
		t.Errorf("the log has a refusal, want it empty: %s", log.String())
	}
}

// TestRefusalCode checks that a refusal has a code that the schema of results permits, or none.
func TestRefusalCode(t *testing.T) {
	for code, want := range map[string]string{
		"": "", "import_refused": "import_refused", "Import refused": "", "house-rule": "", "1x": "", "x\n": "",
	} {
		var log bytes.Buffer
		s := set(t, &log, validator(func(context.Context) error { return &plugin.Refusal{Code: code, Message: "m"} }))
		got, err := s.Validate(t.Context(), plugin.Task{ID: "t1"}, plugin.Program{})
		if got == nil || *got != (plugin.Refusal{Code: want, Message: "m"}) || err != nil {
			t.Errorf("Validate with the code %q = %v, %v, want the code %q", code, got, err, want)
		}
		logged := strings.Contains(log.String(), "plugin refused with an invalid error code")
		if logged != (code != want) {
			t.Errorf("the log of the code %q is %q, want an invalid code: %t", code, log.String(), code != want)
		}
	}
}

// TestNoRefusal checks that a refusal by a hook that cannot refuse is an ordinary error, whose text only the log has.
func TestNoRefusal(t *testing.T) {
	no := &plugin.Refusal{Code: "no", Message: "key 4711"}
	for hook, p := range map[string]plugin.Plugin{
		"select":   selector(func(context.Context, plugin.Selection) ([]string, error) { return nil, no }),
		"generate": generator(func(context.Context, plugin.Draft) (string, error) { return "2", no }),
		"result":   resulter(func(context.Context, *plugin.Result) error { return no }),
	} {
		var log bytes.Buffer
		s := set(t, &log, p)
		_, err := s.Result(t.Context(), plugin.Task{}, plugin.Result{})
		s.Select(t.Context(), plugin.Task{}, plugin.Selection{})
		s.Generate(t.Context(), plugin.Task{}, plugin.Draft{})
		if want := "plugin resulter: result: hook failed; the worker's log has its error"; hook == "result" &&
			(err == nil || err.Error() != want) {
			t.Errorf("Result = %v, want %s", err, want)
		}
		if !strings.Contains(log.String(), "hook="+hook) || !strings.Contains(log.String(), "key 4711") {
			t.Errorf("the log of %s is %q, want the hook and its error", hook, log.String())
		}
	}
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// TestCancelled checks that the error of a hook is the cause of the context, without the plugin's text, if the task is
// cancelled while the error is logged.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the task was cancelled")
	s, err := New(slog.New(slog.NewTextHandler(onWrite(func() { cancel(cause) }), nil)),
		validator(func(context.Context) error { return errors.New("key 4711") }))
	if err != nil {
		t.Fatal(err)
	}
	refusal, err := s.Validate(ctx, plugin.Task{}, plugin.Program{})
	if refusal != nil || !errors.Is(err, cause) || strings.Contains(err.Error(), "4711") {
		t.Errorf("Validate = %v, %v, want %v", refusal, err, cause)
	}
}

func TestSelect(t *testing.T) {
	in := plugin.Selection{
		Available: []plugin.Tool{{Server: "a", Name: "x"}, {Server: "a", Name: "y"}},
		Selected:  []string{"a/x"},
	}
	for name, c := range map[string]struct {
		hook selector
		want []string
	}{
		"another": {func(context.Context, plugin.Selection) ([]string, error) {
			return []string{"a/y", "a/x", "a/y"}, nil
		}, []string{"a/y", "a/x"}},
		"not allowed": {func(context.Context, plugin.Selection) ([]string, error) {
			return []string{"b/z", "a/y"}, nil
		}, []string{"a/y"}},
		"none": {func(context.Context, plugin.Selection) ([]string, error) { return nil, nil }, []string{}},
		"error": {func(_ context.Context, s plugin.Selection) ([]string, error) {
			s.Selected[0] = "changed"
			return nil, errors.New("no")
		}, []string{"a/x"}},
		"panic": {func(context.Context, plugin.Selection) ([]string, error) { panic("no") }, []string{"a/x"}},
	} {
		var log bytes.Buffer
		if diff := cmp.Diff(c.want, set(t, &log, c.hook).Select(t.Context(), plugin.Task{}, in)); diff != "" {
			t.Errorf("%s: Select (-want +got):\n%s", name, diff)
		}
	}
}

func TestGenerate(t *testing.T) {
	for name, c := range map[string]struct {
		hook    generator
		want    string
		changed bool
	}{
		"another": {
			func(_ context.Context, d plugin.Draft) (string, error) { return "# ours\n" + d.Code, nil },
			"# ours\n1", true,
		},
		"left":  {func(context.Context, plugin.Draft) (string, error) { return "", nil }, "1", false},
		"error": {func(context.Context, plugin.Draft) (string, error) { return "2", errors.New("no") }, "1", false},
		"panic": {func(context.Context, plugin.Draft) (string, error) { panic("no") }, "1", false},
	} {
		var log bytes.Buffer
		if code, changed := set(t, &log, c.hook).Generate(t.Context(), plugin.Task{},
			plugin.Draft{Code: "1", By: "rules"}); code != c.want || changed != c.changed {
			t.Errorf("%s: Generate = %q, %v, want %q, %v", name, code, changed, c.want, c.changed)
		}
	}
}

func TestCall(t *testing.T) {
	for name, c := range map[string]struct {
		hook    caller
		want    string
		refused string
		failed  string
	}{
		"changed": {hook: func(context.Context, plugin.Call) (json.RawMessage, error) {
			return json.RawMessage(`{"a":2}`), nil
		}, want: `{"a":2}`},
		"left": {
			hook: func(context.Context, plugin.Call) (json.RawMessage, error) { return nil, nil },
			want: `{"a":1}`,
		},
		"in place": {hook: func(_ context.Context, c plugin.Call) (json.RawMessage, error) {
			c.Args[5] = '7'
			return nil, nil
		}, want: `{"a":1}`},
		"refused": {hook: func(context.Context, plugin.Call) (json.RawMessage, error) {
			return nil, &plugin.Refusal{Message: "no"}
		}, refused: "no"},
		"no object": {hook: func(context.Context, plugin.Call) (json.RawMessage, error) {
			return json.RawMessage(`null`), nil
		}, failed: "hook failed"},
		"no JSON": {hook: func(context.Context, plugin.Call) (json.RawMessage, error) {
			return json.RawMessage(`{`), nil
		}, failed: "hook failed"},
		"panic": {
			hook:   func(context.Context, plugin.Call) (json.RawMessage, error) { panic("no") },
			failed: "hook panicked",
		},
	} {
		var log bytes.Buffer
		args, refusal, err := set(t, &log, c.hook).Call(t.Context(), plugin.Task{},
			plugin.Call{Args: json.RawMessage(`{"a":1}`)})
		if string(args) != c.want || (refusal != nil) != (c.refused != "") || (err != nil) != (c.failed != "") {
			t.Errorf("%s: Call = %s, %v, %v; want %s, refusal %q, error %q",
				name, args, refusal, err, c.want, c.refused, c.failed)
		}
		if err != nil && !strings.Contains(err.Error(), c.failed) {
			t.Errorf("%s: Call = %v, want %q", name, err, c.failed)
		}
	}
}

func TestResult(t *testing.T) {
	original := plugin.Result{
		Status: schemas.Failed, Value: json.RawMessage(`1`), Checkpoint: json.RawMessage(`{"pin":4711}`),
		Output: "secret",
		Error:  &schemas.Error{Code: "exception", Message: "secret"},
	}
	for name, c := range map[string]struct {
		hook resulter
		want plugin.Result
		ok   bool
	}{
		"redacted": {func(_ context.Context, r *plugin.Result) error {
			r.Status, r.Value, r.Output, r.Error.Message = schemas.Succeeded, json.RawMessage{}, "\xff", "-"
			r.Labels["a"], r.Notes = "b", []schemas.Finding{{Rule: "pii", Line: -1}}
			r.Error.Line = -1
			r.Checkpoint = json.RawMessage(`{}`)
			return nil
		}, plugin.Result{
			Status: schemas.Failed, Checkpoint: json.RawMessage(`{}`), Output: "�",
			Error:  &schemas.Error{Code: "exception", Message: "-"},
			Labels: map[string]string{"a": "b"}, Notes: []schemas.Finding{{Rule: "pii", Level: "info"}},
		}, true},
		"no checkpoint": {func(_ context.Context, r *plugin.Result) error {
			r.Checkpoint = json.RawMessage{}
			return nil
		}, plugin.Result{
			Status: schemas.Failed, Value: json.RawMessage(`1`), Output: "secret",
			Error: &schemas.Error{Code: "exception", Message: "secret"}, Labels: map[string]string{},
		}, true},
		"checkpoint is no object": {
			func(_ context.Context, r *plugin.Result) error { r.Checkpoint = json.RawMessage(`[1]`); return nil },
			plugin.Result{},
			false,
		},
		"large checkpoint": {func(_ context.Context, r *plugin.Result) error {
			r.Checkpoint = json.RawMessage(`{"a":"` + strings.Repeat("x", schemas.MaxCheckpoint) + `"}`)
			return nil
		}, plugin.Result{}, false},
		"no JSON": {
			func(_ context.Context, r *plugin.Result) error { r.Value = json.RawMessage(`{`); return nil },
			plugin.Result{},
			false,
		},
		"no error": {
			func(_ context.Context, r *plugin.Result) error { r.Error = nil; return nil },
			plugin.Result{},
			false,
		},
		"no code": {func(_ context.Context, r *plugin.Result) error {
			r.Error = &schemas.Error{Message: "x"}
			return nil
		}, plugin.Result{}, false},
		"invalid code": {
			func(_ context.Context, r *plugin.Result) error { r.Error.Code = "House-Rule"; return nil },
			plugin.Result{},
			false,
		},
		"other level": {func(_ context.Context, r *plugin.Result) error {
			r.Notes = []schemas.Finding{{Level: "refused"}}
			return nil
		}, plugin.Result{}, false},
		"error": {func(context.Context, *plugin.Result) error { return errors.New("no") }, plugin.Result{}, false},
		"panic": {
			func(_ context.Context, r *plugin.Result) error { r.Error.Message = "half"; panic("no") },
			plugin.Result{},
			false,
		},
	} {
		var log bytes.Buffer
		got, err := set(t, &log, c.hook).Result(t.Context(), plugin.Task{}, original)
		if diff := cmp.Diff(c.want, got); diff != "" || (err == nil) != c.ok {
			t.Errorf("%s: Result = %v, (-want +got):\n%s", name, err, diff)
		}
	}
	if original.Error.Message != "secret" {
		t.Error("a plugin changed the original result, want a copy")
	}
}

// TestFloods checks that a plugin cannot return more than the queue can keep, and that a log line does not grow with
// what it returns.
func TestFloods(t *testing.T) {
	huge := strings.Repeat("x", 8<<20)
	var log bytes.Buffer
	ids := []string{"a/x"}
	for range 100_000 {
		ids = append(ids, "b/z", "a/x")
	}
	s := set(t, &log,
		selector(func(context.Context, plugin.Selection) ([]string, error) { return append(ids, huge), nil }),
		generator(func(context.Context, plugin.Draft) (string, error) { return "#" + huge, nil }),
		validator(func(context.Context) error {
			return &plugin.Refusal{Code: huge, Message: huge, Hint: huge, Line: -1}
		}),
		caller(func(context.Context, plugin.Call) (json.RawMessage, error) {
			return json.RawMessage(`{"a":"` + huge + `"}`), nil
		}))
	got := s.Select(t.Context(), plugin.Task{}, plugin.Selection{Available: []plugin.Tool{{Server: "a", Name: "x"}}})
	if diff := cmp.Diff([]string{"a/x"}, got); diff != "" {
		t.Errorf("Select (-want +got):\n%s", diff)
	}
	if code, changed := s.Generate(t.Context(), plugin.Task{}, plugin.Draft{Code: "1"}); code != "1" || changed {
		t.Errorf("Generate = %d bytes, %t, want the draft", len(code), changed)
	}
	r, err := s.Validate(t.Context(), plugin.Task{}, plugin.Program{})
	if err != nil || r == nil || len(r.Code)+len(r.Message)+len(r.Hint) > 4*maxText || r.Line != 0 {
		t.Errorf("Validate = %.100v, %v, want a refusal with short texts", r, err)
	}
	if args, refusal, err := s.Call(t.Context(), plugin.Task{}, plugin.Call{}); err == nil || refusal != nil {
		t.Errorf("Call = %d bytes, %v, want an error", len(args), refusal)
	}
	for name, hook := range map[string]resulter{
		"value": func(_ context.Context, r *plugin.Result) error {
			r.Value = json.RawMessage(`"` + huge + `"`)
			return nil
		},
		"output": func(_ context.Context, r *plugin.Result) error { r.Output = huge; return nil },
		"label":  func(_ context.Context, r *plugin.Result) error { r.Labels["a"] = huge; return nil },
		"notes": func(_ context.Context, r *plugin.Result) error {
			r.Notes = make([]schemas.Finding, 100_000)
			return nil
		},
		"error": func(_ context.Context, r *plugin.Result) error { r.Error.Cause = huge; return nil },
		"depth": func(_ context.Context, r *plugin.Result) error {
			r.Value = json.RawMessage(strings.Repeat("[", 9990) + strings.Repeat("]", 9990))
			return nil
		},
		"digits": func(_ context.Context, r *plugin.Result) error {
			r.Value = json.RawMessage("-" + strings.Repeat("9", 4301))
			return nil
		},
		"added checkpoint": func(_ context.Context, r *plugin.Result) error {
			r.Checkpoint = json.RawMessage(`{}`)
			return nil
		},
		"no UTF-8": func(_ context.Context, r *plugin.Result) error {
			r.Value = json.RawMessage("\"\xff\"")
			return nil
		},
	} {
		_, err := set(t, &log, hook).Result(t.Context(), plugin.Task{}, plugin.Result{Error: &schemas.Error{Code: "x"}})
		if err == nil {
			t.Errorf("%s: Result above the limit = nil, want an error", name)
		}
	}
	if log.Len() > 64<<10 {
		t.Errorf("the log is %d bytes, want at most 64 KiB", log.Len())
	}
}
