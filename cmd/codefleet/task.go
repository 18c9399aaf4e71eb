package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/internal/limited"
	"github.com/codefleet/codefleet/internal/text"
)

// maxTask is the size limit, in bytes, of a task with its files over HTTP.
const maxTask = 32 << 20

// taskFlags are the flags that describe a task, for commands such as run, submit and schedules add.
type taskFlags struct {
	code, file, inputs string
	skill              string
	session, workspace string
	timeout            time.Duration
	memory             int
	cpus               float64
	with, out, net     []string
	env                []string
	pool, priority     string
	model              string
	at, key, partition string

	example string         // a command line, for the hint if there is not exactly one task
	flags   *pflag.FlagSet // nil in tests
}

// declare declares all flags of a command that submits one task.
func (f *taskFlags) declare(c *cobra.Command) {
	f.declareTask(c)
	s := c.Flags()
	s.StringVar(&f.at, "at", "", "do not run before this `TIME`: 15:04, 2006-01-02T15:04:05Z, or +10m")
	s.StringVar(&f.key, "idempotency-key", "", "`KEY`: submissions with the same key create one task")
	s.StringVar(&f.partition, "partition-key", "",
		"`KEY` of the task's result: a webhook gets the results with one key in order")
}

// declareTask declares the flags that also make sense for the task of a schedule or trigger, which is submitted many
// times.
func (f *taskFlags) declareTask(c *cobra.Command) {
	s := c.Flags()
	f.flags = s
	s.StringVar(&f.code, "code", "", "`TEXT` of the program")
	s.StringVarP(&f.file, "file", "f", "", "`FILE` with the program, or - for standard input")
	s.StringVar(&f.skill, "skill", "", "`NAME` of the skill to run, with --inputs as its arguments")
	s.StringVar(&f.inputs, "inputs", "", "`JSON`, or @FILE, that the program finds in its variable named inputs")
	s.StringVarP(&f.session, "session", "s", "", "`NAME` of the session that the task belongs to")
	s.StringVarP(&f.workspace, "workspace", "w", "",
		"`NAME` of the workspace that the task reads and changes (default: main)")
	s.DurationVar(&f.timeout, "timeout", 0, "time limit of one execution, such as 90s")
	s.Var(memory{&f.memory}, "memory", "memory limit of one execution in `MB`, or with a unit, such as 2GB")
	s.Float64Var(&f.cpus, "cpus", 0, "`NUMBER` of processors of one execution, such as 0.5")
	s.StringArrayVar(&f.env, "env", nil,
		"`NAME=VALUE` of an environment variable of the program (may be repeated)")
	s.StringArrayVar(&f.with, "with", nil, "`FILE` to place in the workspace (may be repeated)")
	s.StringArrayVar(&f.out, "out", nil,
		"`GLOB` of files to return; \"codefleet run\" saves them below the working directory (may be repeated)")
	s.StringVar(&f.pool, "pool", "", "`NAME` of the task pool (default: the pool named default)")
	s.StringVar(&f.priority, "priority", "", "high, normal or low")
	s.StringVar(&f.model, "model", "", "`PROFILE` of the model that writes the program (llm.profiles)")
	s.StringArrayVar(&f.net, "net", nil,
		"`HOST` that the program may reach, such as example.org or '*.example.org' (may be repeated)")
	completeFlag(c, "priority", "high", "normal", "low")
}

// completeTaskFlags completes flags with names from the fleet or the settings.
func (a *app) completeTaskFlags(c *cobra.Command) {
	a.completeWorkspaces(c)
	_ = c.RegisterFlagCompletionFunc("skill",
		a.complete(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
			return a.skillCompletions(ctx, c)
		}))
	_ = c.RegisterFlagCompletionFunc("pool",
		a.complete(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
			fleet, err := c.Fleet(ctx)
			if err != nil {
				return nil
			}
			return mapSlice(addIdlePools(fleet.Backlog, fleet.Workers), func(b client.Backlog) cobra.Completion {
				return cobra.CompletionWithDesc(b.Pool, fmt.Sprintf("%d queued, %d running", b.Queued, b.Running))
			})
		}))
	_ = c.RegisterFlagCompletionFunc("model",
		func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			settings, err := a.loadSilently()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			profiles := settings.LLM.Profiles
			return mapSlice(slices.Sorted(maps.Keys(profiles)), func(name string) cobra.Completion {
				return cobra.CompletionWithDesc(name, cmp.Or(profiles[name].Model, settings.LLM.Model))
			}), cobra.ShellCompDirectiveNoFileComp
		})
}

// submission returns the task that flags and arguments describe. The arguments are the task description, or "-" to
// read it from standard input.
func (f *taskFlags) submission(args []string, stdin io.Reader) (client.Submission, error) {
	s := client.Submission{
		Task: client.Task{
			Description: strings.TrimSpace(strings.Join(args, " ")), Code: f.code, Skill: skillName(f.skill),
			Pool: f.pool, Model: f.model, Artifacts: f.out,
		},
		Workspace: f.workspace, Session: f.session, Priority: f.priority, IdempotencyKey: f.key,
		PartitionKey: f.partition,
	}
	if err := f.acceptFileName(args, &s); err != nil {
		return s, err
	}
	if err := f.checkUTF8(s.Description); err != nil {
		return s, err
	}
	given := 0
	for _, set := range []bool{s.Description != "", f.code != "", f.file != "", f.skill != ""} {
		if set {
			given++
		}
	}
	if given != 1 {
		return s, usage("want exactly one of a task description, --code, --file and --skill").
			try(f.example)
	}
	return s, cmp.Or(
		readDescription(&s, stdin), f.readCode(&s, stdin), f.readInputs(&s), f.readEnv(&s), f.readFiles(&s),
		f.readLimits(&s), f.readStart(&s), f.readNetwork(&s))
}

// acceptFileName treats the only argument as --file if it is the name of a Python file. It rejects the name of another
// file, the path of a directory, the name of a Python file that does not exist, and a Python file with arguments,
// because these are not tasks.
func (f *taskFlags) acceptFileName(args []string, s *client.Submission) error {
	if f.code != "" || f.file != "" || f.skill != "" || strings.Contains(s.Description, "\n") {
		return nil
	}
	if program := programOf(args); program != "" {
		return usage("%s is a Python file, and not a task together with other words", program).
			try("--file " + shellescape.Quote(program) + ", and --inputs JSON for what the program finds as `inputs`")
	}
	if len(args) != 1 {
		return nil
	}
	name := args[0]
	info, err := os.Stat(name)
	isFile, isDir, isPython := err == nil && !info.IsDir(), err == nil && info.IsDir(), filepath.Ext(name) == ".py"
	switch {
	case isFile && isPython:
		f.file, s.Description = name, ""
	case isFile:
		quoted := shellescape.Quote(name)
		return usage("%s is a file, not a task", name).
			try("--file " + quoted + " if it is a Python program, or - < " + quoted + " if it describes a task")
	case isDir && (isPython || strings.ContainsRune(name, '/')):
		return usage("%s is a directory, not a task", name).try("--file FILE, or --code TEXT")
	case errors.Is(err, fs.ErrNotExist) && isPython && !strings.Contains(name, " "):
		return usage("%s: no such file", name).try("--file FILE, or --code TEXT")
	}
	return nil
}

// programOf returns the Python file that the arguments name beside other words, as in `s.py 3` and `python s.py`, or
// whose name a shell has split, as in `my script.py`. It returns "" if there is none. A sentence in quotation marks is
// one argument.
func programOf(args []string) string {
	words := args
	if len(args) == 1 {
		words = strings.Fields(args[0])
	}
	if len(words) < 2 {
		return ""
	}
	names := []string{strings.Join(words, " "), words[0]}
	switch {
	case words[0] == "python" || words[0] == "python3":
		names = []string{strings.Join(words[1:], " "), words[1]}
	case len(args) == 1:
		return ""
	}
	i := slices.IndexFunc(names, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && !info.IsDir() && filepath.Ext(name) == ".py"
	})
	if i < 0 {
		return ""
	}
	return names[i]
}

// checkUTF8 returns an error for text that is not UTF-8, because JSON would replace the invalid bytes. The error does
// not contain the text, which may be secret.
func (f *taskFlags) checkUTF8(description string) error {
	for _, t := range []struct{ name, value string }{
		{"the task description", description},
		{"--code", f.code},
		{"--env", strings.Join(f.env, "\n")},
		{"--idempotency-key", f.key},
		{"--partition-key", f.partition},
		{"--out", strings.Join(f.out, "\n")},
	} {
		if !utf8.ValidString(t.value) {
			return usage("%s is not UTF-8 text", t.name)
		}
	}
	return nil
}

func readDescription(s *client.Submission, stdin io.Reader) error {
	if s.Description != "-" {
		return nil
	}
	text, err := readText("task on standard input", "-", stdin)
	if s.Description = strings.TrimSpace(text); err == nil && s.Description == "" {
		return usage("task on standard input is empty")
	}
	return err
}

func (f *taskFlags) readCode(s *client.Submission, stdin io.Reader) (err error) {
	if f.file == "" {
		return nil
	}
	s.Code, err = readProgram("--file "+f.file, f.file, stdin)
	return err
}

// readProgram returns the program in a file or, for -, in standard input. Errors begin with name.
func readProgram(name, path string, stdin io.Reader) (string, error) {
	code, err := readText(name, path, stdin)
	code = strings.TrimPrefix(code, "\ufeff") // Python also skips the byte order mark of a file
	if err == nil && code == "" {
		return "", usage("%s is empty", name)
	}
	return code, err
}

// readText returns the content of a file or, for -, of standard input. Errors begin with name.
func readText(name, path string, stdin io.Reader) (string, error) {
	var data []byte
	var err error
	if path == "-" {
		data, err = readInput(stdin)
	} else {
		data, err = readFile(path)
	}
	switch {
	case errors.Is(err, errTooLarge):
		return "", usage("%s %v", name, err)
	case err != nil:
		return "", usage("%s: %v", name, reasonOf(err))
	case !utf8.Valid(data):
		return "", usage("%s is not UTF-8 text", name)
	}
	return string(data), nil
}

// onceReader is standard input. A second argument that is - would read nothing.
type onceReader struct {
	io.Reader
	ended bool
}

func (r *onceReader) Read(p []byte) (int, error) {
	if r.ended {
		return 0, errors.New("standard input was read already: only one argument may be -")
	}
	n, err := r.Reader.Read(p)
	r.ended = errors.Is(err, io.EOF)
	return n, err
}

var errTooLarge = fmt.Errorf("is larger than %d MiB", maxTask>>20)

// readFile returns the content of a file that an argument names. It reads no more than a task can hold. The error of a
// larger file is errTooLarge.
func readFile(path string) ([]byte, error) {
	defer countReading()()
	data, err := limited.ReadFile(path, maxTask)
	if errors.Is(err, limited.ErrTooLarge) {
		return nil, errTooLarge
	}
	return data, err
}

// readInput returns the content of standard input, with the limit and the error of readFile.
func readInput(stdin io.Reader) ([]byte, error) {
	data, err := limited.ReadAll(inputReader{stdin}, maxTask)
	if errors.Is(err, limited.ErrTooLarge) {
		return nil, errTooLarge
	}
	return data, err
}

func (f *taskFlags) readInputs(s *client.Submission) (err error) {
	if f.inputs != "" {
		s.Inputs, err = readJSON("--inputs", f.inputs, nil)
	}
	return err
}

// readEnv reads --env. Its errors do not contain values, which may be secret.
func (f *taskFlags) readEnv(s *client.Submission) error {
	for _, variable := range f.env {
		name, value, ok := strings.Cut(variable, "=")
		if !ok || name == "" {
			return usage("--env: want NAME=VALUE").try("--env GREETING=hello")
		}
		if _, twice := s.Env[name]; twice {
			return usage("--env: %s is given twice", name)
		}
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		s.Env[name] = value
	}
	return nil
}

func (f *taskFlags) readFiles(s *client.Submission) error {
	total := len(s.Code) + len(s.Inputs)
	byName := map[string]string{}
	for _, path := range f.with {
		name := filepath.Base(path)
		if !utf8.ValidString(name) { // JSON would replace the invalid bytes
			return usage("--with: the name %q is not valid UTF-8", name)
		}
		other, taken := byName[name]
		if taken && filepath.Clean(other) == filepath.Clean(path) {
			continue
		}
		if taken {
			return usage("--with: %q and %q have the same name", other, path).try("rename one of them")
		}
		byName[name] = path
		data, err := readFile(path)
		if err != nil && !errors.Is(err, errTooLarge) {
			return usage("--with: %v", err)
		}
		if total += len(data); err != nil || total > maxTask {
			return usage("--with %s: the task with its files is larger than %d MiB", path, maxTask>>20)
		}
		file := client.File{Name: name}
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

// The limits of schemas/task.v1.json. shortestTimeout is the command's own: a shorter limit may not take effect before
// the program has ended.
const (
	shortestTimeout = 100 * time.Millisecond
	longestTimeout  = 7 * 24 * time.Hour
	minMemoryMB     = 16
	minCPUs         = 0.01
	maxCPUs         = 1024
)

func (f *taskFlags) readLimits(s *client.Submission) error {
	set := func(name string, nonzero bool) bool { // --timeout 0 is set, too
		return nonzero || f.flags != nil && f.flags.Changed(name)
	}
	switch {
	case set("timeout", f.timeout != 0) && (f.timeout < shortestTimeout || f.timeout > longestTimeout):
		return usage("--timeout %s: want a time from %s to %s (7 days)",
			text.Duration(f.timeout), text.Duration(shortestTimeout), text.Duration(longestTimeout))
	case set("cpus", f.cpus != 0) && !(f.cpus >= minCPUs && f.cpus <= maxCPUs): // this also refuses NaN
		return usage("--cpus %v: want a number from %v to %d, such as 0.5", f.cpus, minCPUs, maxCPUs)
	}
	if f.timeout > 0 || f.memory > 0 || f.cpus > 0 {
		s.Limits = &client.Limits{TimeoutS: f.timeout.Seconds(), MemoryMB: f.memory, CPUs: f.cpus}
	}
	return nil
}

func (f *taskFlags) readNetwork(s *client.Submission) error {
	for _, host := range f.net {
		_, err := allowlist.Parse(host)
		if name, isURL := allowlist.HostOfURL(host); isURL {
			return usage("--net %v", err).try("--net " + cmp.Or(name, "example.org"))
		}
		if err != nil {
			return usage("--net %v", err).try("--net example.org, or --net '*.example.org'")
		}
	}
	if len(f.net) > 0 {
		s.Network = &client.Network{Allow: f.net}
	}
	return nil
}

// noteUnreachable prints a note for each requested host that no program can reach. The fleet accepts them, because it
// decides when a program connects.
func (a *app) noteUnreachable(s client.Submission) {
	if s.Network == nil {
		return
	}
	for _, host := range s.Network.Allow {
		if p, err := allowlist.Parse(host); err == nil && egress.NeverReached(p) {
			a.printNote("note: programs cannot reach " + host + ": it is not on the public internet")
		}
	}
}

// readStart reads --at.
func (f *taskFlags) readStart(s *client.Submission) error {
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

// parseAt parses an RFC 3339 time, +DURATION from now, or a time of day, which means its next occurrence.
func parseAt(text string, now time.Time) (time.Time, error) {
	if delay, relative := strings.CutPrefix(text, "+"); relative {
		d, err := time.ParseDuration(delay)
		if err != nil && anyDuration.MatchString(delay) {
			return time.Time{}, usage("--at %q is too late", text)
		}
		if err != nil || strings.ContainsAny(delay, "+-") {
			return time.Time{}, usage("--at %q: want a time from now, such as +10m or +1h30m", text)
		}
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
	return time.Time{}, usage("--at %q is not a time", text).
		try("--at 15:04, --at +10m, or --at " + now.UTC().Format(time.RFC3339))
}
