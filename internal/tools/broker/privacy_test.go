package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
)

// hide sets hooks that know one value and its token. It returns what Open got.
func (w *world) hide() (opened *[]string) {
	opened = new([]string)
	swap := func(from, to string) func(json.RawMessage) (json.RawMessage, error) {
		return func(v json.RawMessage) (json.RawMessage, error) {
			return object(strings.ReplaceAll(string(v), from, to)), nil
		}
	}
	restore, tokenise := swap("[EMAIL_1]", "a@b.c"), swap("a@b.c", "[EMAIL_1]")
	w.cfg.Hooks.Restore = func(_ context.Context, c broker.Call) (json.RawMessage, error) { return restore(c.Args) }
	w.cfg.Hooks.Tokenise = func(_ context.Context, _ broker.Call, v json.RawMessage) (json.RawMessage, error) {
		return tokenise(v)
	}
	w.cfg.Hooks.Seal = func(recorded ...[]byte) ([]byte, error) {
		var sealed []byte
		for _, r := range recorded {
			if strings.Contains(string(r), "[EMAIL_1]") {
				sealed = append(sealed, "sealed "...)
			}
		}
		return sealed, nil
	}
	w.cfg.Hooks.Open = func(sealed []byte) error {
		*opened = append(*opened, string(sealed))
		return nil
	}
	return opened
}

// No error contains a private value, whether the error comes from the tool, the transport or the check of restored
// arguments. Text files have tokens instead of values, too.
func TestPrivacyOfErrorsAndFiles(t *testing.T) {
	w := newWorld(t)
	w.hide()
	w.reply["put"] = func(tools.Request) (tools.Result, error) {
		return tools.Result{
			IsError: true, Content: text(strings.Repeat("x", 3998) + "a@b.c").Content,
			Structured: json.RawMessage(`{"who":"a@b.c"}`),
		}, nil
	}
	w.reply["set"] = func(tools.Request) (tools.Result, error) {
		return tools.Result{}, errors.New("400: a@b.c is unknown")
	}
	w.reply["silent"] = func(tools.Request) (tools.Result, error) {
		file := tools.Content{Type: "resource", MediaType: "text/csv", Data: []byte("1,a@b.c")}
		return tools.Result{Content: []tools.Content{file}}, nil
	}
	for tool, args := range map[string]string{
		"put": `{}`, "set": `{}`, "get": `{"[EMAIL_1]":1,"location":"x"}`, "free": `{"a":"[EMAIL_1]","[EMAIL_1]":"[EMAIL_1]"}`,
		"typed": `{"[EMAIL_1]":1,"[EMAIL_1]":2}`,
	} {
		_, err := w.call(w.open(), tool, args)
		failure, ok := errors.AsType[*broker.Error](err)
		if !ok || strings.Contains(failure.Error()+string(failure.Structured)+string(failure.Content), "a@") {
			t.Errorf("%s(%s) = %v (%s), want an error without the value", tool, args, err, failure.Structured)
		}
	}
	if _, err := w.call(w.open(), "silent", `{}`); err != nil {
		t.Errorf("silent = %v, want nil", err)
	}
	for name, data := range w.files {
		if string(data) != "1,[EMAIL_1]" {
			t.Errorf("%s contains %q, want the token", name, data)
		}
	}
	if len(w.files) != 1 {
		t.Errorf("%d files, want 1", len(w.files))
	}
}

// The journal has the values of the tokens of each result, encrypted. A later run gets them before the program gets the
// replayed result, and replays the result even if they cannot be read.
func TestTokensAreReplayed(t *testing.T) {
	w := newWorld(t)
	opened := w.hide()
	w.reply["put"] = func(tools.Request) (tools.Result, error) { return text("to a@b.c"), nil }
	w.reply["set"] = func(tools.Request) (tools.Result, error) { return text("nothing private"), nil }
	w.reply["drop"] = func(tools.Request) (tools.Result, error) {
		return tools.Result{IsError: true, Content: text("no a@b.c").Content}, nil
	}
	first := w.open()
	for _, tool := range []string{"put", "set", "drop"} {
		if _, err := w.call(first, tool, `{}`); err != nil && code(err) != errcode.ToolFailed {
			t.Fatalf("%s = %v, want nil or tool_failed", tool, err)
		}
	}
	second := w.next()
	if got, err := w.call(second, "put", `{}`); err != nil || got != `"to [EMAIL_1]"` || len(*opened) != 1 {
		t.Errorf("replayed put = %s, %v after Open(%q); want the token, and its value opened", got, err, *opened)
	}
	if got, err := w.call(second, "set", `{}`); err != nil || len(*opened) != 1 {
		t.Errorf("replayed set = %s, %v after Open(%q); want nothing opened: it has no tokens", got, err, *opened)
	}
	w.cfg.Hooks.Open = func([]byte) error { return errors.New("another key") }
	third := w.next()
	if got, err := w.call(third, "put", `{}`); err != nil || got != `"to [EMAIL_1]"` {
		t.Errorf("put replayed without the key = %s, %v; want the recorded result", got, err)
	}
	if _, err := w.call(second, "drop", `{}`); code(err) != errcode.ToolFailed || len(*opened) != 2 {
		t.Errorf("replayed drop = %v after Open(%q); want its error, and its values opened", err, *opened)
	}
}
