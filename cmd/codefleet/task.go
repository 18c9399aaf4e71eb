package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
)

// maxTask is the limit of a task with its files, in bytes, over HTTP.
const maxTask = 32 << 20

// taskFlags are the flags of run and submit.
type taskFlags struct {
	code, file, inputs string
	session, workspace string
	timeout            time.Duration
	with, out, net     []string
	pool, priority     string
	model              string
	at, key            string
}

func (f *taskFlags) declare(c *cobra.Command) {
	s := c.Flags()
	s.StringVar(&f.code, "code", "", "the program, as `TEXT`")
	s.StringVarP(&f.file, "file", "f", "", "`FILE` of the program; - is standard input")
	s.StringVar(&f.inputs, "inputs", "", "the program's variable inputs, as `JSON` or @FILE")
	s.StringVarP(&f.session, "session", "s", "", "`NAME` of the session that the task belongs to")
	s.StringVarP(&f.workspace, "workspace", "w", "",
		"`NAME` of the workspace whose files the task reads and changes (default: main)")
	s.DurationVar(&f.timeout, "timeout", 0, "time limit of one run, such as 90s")
	s.StringArrayVar(&f.with, "with", nil, "`FILE` to place in the workspace (may be repeated)")
	s.StringArrayVar(&f.out, "out", nil,
		"`GLOB` of files to return; run saves them below the working directory (may be repeated)")
	s.StringVar(&f.pool, "pool", "", "`NAME` of the pool")
	s.StringVar(&f.priority, "priority", "", "high, normal or low")
	s.StringVar(&f.model, "model", "", "`PROFILE` of the fleet's models that writes the program (llm.profiles)")
	s.StringArrayVar(&f.net, "net", nil,
		"`HOST` that the program may reach, as example.org or '*.example.org' (may be repeated)")
	s.StringVar(&f.at, "at", "", "do not run before this `TIME`: 15:04, 2006-01-02T15:04:05Z, or +10m")
	s.StringVar(&f.key, "idempotency-key", "", "submissions with the same `KEY` are one task")
	_ = c.RegisterFlagCompletionFunc("priority",
		cobra.FixedCompletions([]string{"high", "normal", "low"}, cobra.ShellCompDirectiveNoFileComp))
}

// completeTaskFlags completes flags with what the fleet or the settings know.
func (a *app) completeTaskFlags(c *cobra.Command) {
	a.completeWorkspaces(c)
	_ = c.RegisterFlagCompletionFunc("pool",
		a.complete(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
			fleet, err := c.Fleet(ctx)
			if err != nil {
				return nil
			}
			var names []cobra.Completion
			for _, b := range withServed(fleet.Backlog, fleet.Workers) {
				names = append(names, cobra.CompletionWithDesc(b.Pool,
					fmt.Sprintf("%d queued, %d running", b.Queued, b.Running)))
			}
			return names
		}))
	_ = c.RegisterFlagCompletionFunc("model",
		func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			settings, err := config.Load(config.Source{File: a.config, Env: a.env})
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []cobra.Completion
			for _, name := range slices.Sorted(maps.Keys(settings.LLM.Profiles)) {
				names = append(names, cobra.CompletionWithDesc(name,
					cmp.Or(settings.LLM.Profiles[name].Model, settings.LLM.Model)))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		})
}

// submission returns the task of the flags and arguments. The arguments are a description; "-" reads it from
// standard input.
func (f *taskFlags) submission(args []string, stdin io.Reader) (client.Submission, error) {
	s := client.Submission{
		Task: client.Task{
			Description: strings.TrimSpace(strings.Join(args, " ")), Code: f.code, Pool: f.pool, Model: f.model,
			Artifacts: f.out,
		},
		Workspace: f.workspace, Session: f.session, Priority: f.priority, IdempotencyKey: f.key,
	}
	given := 0
	for _, set := range []bool{s.Description != "", f.code != "", f.file != ""} {
		if set {
			given++
		}
	}
	if given != 1 {
		return s, &failure{
			code: errcode.ExitUsage, message: "want either a task in words, or --code, or --file",
			hint: "codefleet run --code 'print(6*7)'",
		}
	}
	for _, read := range []func() error{
		func() error { return readWords(&s, stdin) },
		func() error { return f.readCode(&s, stdin) },
		func() error { return f.readInputs(&s) },
		func() error { return f.readFiles(&s) },
		func() error { return f.readTimes(&s) },
	} {
		if err := read(); err != nil {
			return s, err
		}
	}
	if len(f.net) > 0 {
		s.Network = &client.Network{Allow: f.net}
	}
	return s, nil
}

func readWords(s *client.Submission, stdin io.Reader) error {
	if s.Description != "-" {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxTask+1))
	s.Description = strings.TrimSpace(string(data))
	switch {
	case err != nil:
		return usage("task on standard input: %v", err)
	case len(data) > maxTask:
		return usage("task on standard input: larger than %d MiB", maxTask>>20)
	case !utf8.Valid(data):
		return usage("task on standard input: not UTF-8 text")
	case s.Description == "":
		return usage("task on standard input: empty")
	}
	return nil
}

func (f *taskFlags) readCode(s *client.Submission, stdin io.Reader) error {
	if f.file == "" {
		return nil
	}
	var data []byte
	var err error
	if f.file == "-" {
		data, err = io.ReadAll(io.LimitReader(stdin, maxTask+1))
	} else {
		data, err = os.ReadFile(f.file)
	}
	switch {
	case err != nil:
		return usage("--file: %v", err)
	case len(data) > maxTask:
		return usage("--file %s: larger than %d MiB", f.file, maxTask>>20)
	case !utf8.Valid(data):
		return usage("--file %s: not UTF-8 text", f.file)
	case len(data) == 0:
		return usage("--file %s: empty", f.file)
	}
	s.Code = string(data)
	return nil
}

func (f *taskFlags) readInputs(s *client.Submission) error {
	if f.inputs == "" {
		return nil
	}
	text := []byte(f.inputs)
	if path, ok := strings.CutPrefix(f.inputs, "@"); ok {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return usage("--inputs: %v", err)
		}
	}
	if err := json.Unmarshal(text, new(any)); err != nil {
		return &failure{
			code: errcode.ExitUsage, message: "--inputs: not valid JSON", err: err,
			hint: `--inputs '{"name": "value"}', or --inputs @FILE`,
		}
	}
	s.Inputs = text
	return nil
}

func (f *taskFlags) readFiles(s *client.Submission) error {
	total := len(s.Code) + len(s.Inputs)
	for _, path := range f.with {
		data, err := os.ReadFile(path)
		if err != nil {
			return usage("--with: %v", err)
		}
		if total += len(data); total > maxTask {
			return usage("--with %s: the task is larger than %d MiB with it", path, maxTask>>20)
		}
		file := client.File{Name: filepath.Base(path)}
		if text := string(data); utf8.Valid(data) {
			file.Text = &text
		} else {
			text = base64.StdEncoding.EncodeToString(data)
			file.Base64 = &text
		}
		s.Files = append(s.Files, file)
	}
	return nil
}

func (f *taskFlags) readTimes(s *client.Submission) error {
	if f.timeout < 0 {
		return usage("--timeout %s: negative", f.timeout)
	}
	if f.timeout > 0 {
		s.Limits = &client.Limits{TimeoutS: f.timeout.Seconds()}
	}
	if f.at == "" {
		return nil
	}
	at, err := parseAt(f.at, time.Now())
	if err != nil {
		return err
	}
	s.NotBefore = &at
	return nil
}

// parseAt parses a time of day (the next one), a full time, or +DURATION.
func parseAt(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(strings.TrimPrefix(text, "+")); err == nil && strings.HasPrefix(text, "+") {
		return now.Add(d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		t, err := time.ParseInLocation(layout, text, now.Location())
		if err != nil {
			continue
		}
		at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
		if at.Before(now) {
			at = at.AddDate(0, 0, 1)
		}
		return at, nil
	}
	return time.Time{}, &failure{
		code: errcode.ExitUsage, message: fmt.Sprintf("--at %q: not a time", text),
		hint: "--at 15:04, --at +10m, or --at " + now.UTC().Format(time.RFC3339),
	}
}
