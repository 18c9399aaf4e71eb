package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/dirsync"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/up"
)

func (a *app) runCommand() *cobra.Command {
	flags := taskFlags{example: "codefleet run --code 'print(6*7)'"}
	c := &cobra.Command{
		Use:   "run TASK|- | --code TEXT | --file FILE|-",
		Args:  cobra.ArbitraryArgs,
		Short: "Run a task, and print its output and its result",
		Long: "Run a task, and print its output while it runs, its result, and the time of each stage. If\n" +
			"no fleet is found, the command starts one for this run. Ctrl-C asks whether to cancel the\n" +
			"task or to detach from it.",
		Example: `  codefleet run "Calculate 5 + 3 and get weather for San Francisco"
  codefleet run - < task.txt
  codefleet run --code 'print(6*7)'
  codefleet run --file report.py --with data.csv --out 'out/*.png' --inputs '{"year": 2024}'
  codefleet run -o json --code 'result = 42' | jq .result`,
	}
	flags.declare(c)
	a.completeTaskFlags(c)
	a.explainFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		var s client.Submission
		err := a.interruptibly(c.Context(), func() (err error) {
			s, err = flags.submission(args, a.stdin)
			return err
		})
		if err == nil && a.explain && s.Description == "" {
			err = usage("--explain has no effect on a task that has a program: it prints an unfinished one").
				try("the same command without --explain")
		}
		if err != nil {
			return err
		}
		return a.runTask(c.Context(), s)
	}
	return c
}

func (a *app) runTask(ctx context.Context, s client.Submission) error {
	starting, stop := a.interruptible(ctx)
	r, rec, err := a.begin(starting, s)
	stop()
	if r != nil {
		defer r.close()
	}
	if err != nil {
		return err
	}
	final, err := r.follow(ctx, rec)
	if err != nil {
		return markCall(err)
	}
	if final.Result == nil {
		return nil // detached
	}
	output, stderr := r.rest(final.Result)
	err = a.showResult(*final.Result, output, stderr)
	if failed := r.save(ctx, final.Result, s.Artifacts); failed != nil {
		return failed
	}
	return err
}

// foreground connects a command to a fleet, which it starts if none is found. For `run`, it also follows the task.
type foreground struct {
	a              *app
	client         *client.Client
	private        *up.Fleet // started for this command; nil if a fleet was found
	flushTelemetry func()    // flushes private's telemetry; called after private has stopped

	mu             sync.Mutex // held while printing, and while askDetach waits for the user
	line           *progress
	current        int // the run whose output is printed
	stdout, stderr liveStream
	begun          bool // whether an event of the task has arrived
}

// begin finds or starts a fleet and submits the task.
func (a *app) begin(ctx context.Context, s client.Submission) (*foreground, client.Record, error) {
	r := &foreground{a: a, line: a.progress()}
	if err := r.connect(ctx); err != nil {
		return r, client.Record{}, err
	}
	a.noteUnreachable(s)
	r.line.show("submit")
	stopNote := afterClaimTime(func() {
		r.line.clear()
		fmt.Fprintln(a.stderr, "note: the fleet has not accepted the task yet; the command retries for a while")
	})
	rec, err := r.client.Submit(ctx, s)
	stopNote()
	if err == nil && s.IdempotencyKey != "" {
		a.noteEarlier(rec)
	}
	return r, rec, markCall(err)
}

// noteEarlier prints a note if the record of a submission with an idempotency key is that of an earlier submission,
// whose task is no longer queued.
func (a *app) noteEarlier(rec client.Record) {
	if rec.Status == client.Queued || a.output == "json" {
		return
	}
	fmt.Fprintf(a.stderr, "note: the task of this key was submitted %s, and does not run again: %s is %s\n",
		ago(rec.SubmittedAt), rec.TaskID, rec.Status)
}

// connect finds or starts a fleet, and sets r.client.
func (r *foreground) connect(ctx context.Context) error {
	_, err := r.a.locate()
	if errors.Is(err, client.ErrNoFleet) || err == nil && r.stale() {
		return r.startFleet(ctx)
	}
	r.client, err = r.a.connect(ctx, 0)
	return err
}

// stale reports whether the fleet was found only by a fleet.json that a killed `up` left behind.
func (r *foreground) stale() bool {
	defaultDir, _ := config.DataDir(r.a.lookup) // empty if it is unknown
	dir := cmp.Or(r.a.lookup("CODEFLEET_DATA"), defaultDir)
	return !r.a.namesFleet() && dir != "" && !up.Running(dir)
}

// startFleet starts a fleet for this command, or connects to a fleet that has started in the meantime.
func (r *foreground) startFleet(ctx context.Context) error {
	c, err := r.a.load()
	if err != nil {
		return err
	}
	if c.Origin("logging.level").Layer == config.LayerDefault {
		c.Logging.Level = "ERROR" // so that logs do not mix with the program's output
	}
	t, err := telemetry.Setup(ctx, assembly.Telemetry(c, "run", version, r.a.stderr))
	if err != nil {
		return usage("%v", err)
	}
	fmt.Fprintf(r.a.stderr, "no fleet found: starting one for this run in %s (`%s` keeps one running)\n",
		c.Data, r.a.withFlags("codefleet up"))
	start := func() (err error) {
		r.private, err = up.Start(ctx, up.Options{
			Config: c, Telemetry: t, Version: version, Worker: r.a.worker, Private: true, Step: r.line.show,
		})
		r.line.clear()
		return err
	}
	err = r.startWhenFree(ctx, c.Data, start)
	if r.client != nil {
		return errors.Join(err, flush(ctx, t)) // startWhenFree has found another fleet
	}
	if err != nil {
		return cannotStart(ctx, errors.Join(err, flush(ctx, t)))
	}
	r.flushTelemetry = func() { _ = flush(ctx, t) }
	r.client, err = client.New(ctx, client.Options{
		URL: r.private.File.URL, Token: r.private.File.Token, Source: "codefleet/cli",
	})
	return err
}

// startWhenFree calls start until it no longer returns ErrInUse. If another `run` with a private fleet uses the data
// directory, the directory is free when that command ends. If a fleet that responds uses it, startWhenFree connects to
// that fleet instead.
func (r *foreground) startWhenFree(ctx context.Context, dir string, start func() error) error {
	const interval = 200 * time.Millisecond
	for noted := false; ; noted = true {
		err := start()
		if !errors.Is(err, up.ErrInUse) {
			return err
		}
		if r.a.responds(ctx) {
			r.client, err = r.a.connect(ctx, 0)
			return err
		}
		if !noted {
			fmt.Fprintf(r.a.stderr, "note: waiting for another process that uses %s "+
				"(set CODEFLEET_DATA to use another directory)\n", dir)
		}
		if err := clock.Sleep(ctx, interval); err != nil {
			return err
		}
	}
}

// responds reports whether the fleet that client.Locate finds responds.
func (a *app) responds(ctx context.Context) bool {
	c, err := a.connect(ctx, -1)
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.WhoAmI(ctx)
	return err == nil
}

func (r *foreground) close() {
	r.line.clear()
	if r.client != nil {
		r.client.Close()
	}
	if r.private != nil {
		if err := r.private.Close(); err != nil {
			fmt.Fprintln(r.a.stderr, "warning: the fleet of this run did not stop cleanly:", err)
		}
		r.flushTelemetry()
	}
}

// follow prints the task's output until the task ends or the user detaches. After a detach the record has no result.
func (r *foreground) follow(ctx context.Context, rec client.Record) (client.Record, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var final client.Record
	var watchErr error
	ended := make(chan struct{}) // closed once final and watchErr are set
	notedStart := noteStart(r.line.above(r.a.stderr), rec)
	r.line.show("queued")
	go func() {
		defer close(ended)
		final, watchErr = r.client.Watch(ctx, rec.TaskID, 0, r.show)
	}()
	unclaimed := time.After(claimTime)
	var stopped error // what a further signal returns, once the first one has cancelled the task
	answered := make(chan error, 1)
	for {
		select {
		case <-unclaimed:
			if !notedStart {
				r.noteWait(ctx, rec)
			}
		case <-ended:
			r.line.clear()
			return final, watchErr
		case <-r.a.signals:
			if stopped != nil {
				return rec, stopped
			}
			if r.askDetach() {
				fmt.Fprintln(r.a.stderr, "detached, the task continues:",
					r.a.withFlags("codefleet logs -f "+rec.TaskID))
				return client.Record{}, nil
			}
			stopped = &failure{
				code: errcode.ExitStopped, message: "interrupted; the fleet has not confirmed that it cancels the task",
				hint: "codefleet cancel " + rec.TaskID,
			}
			go func() {
				_, err := r.client.Cancel(ctx, rec.TaskID)
				answered <- err
			}()
		case err := <-answered:
			if err != nil {
				return rec, err
			}
			stopped = &failure{
				code: errcode.ExitStopped, message: "interrupted; the task is being cancelled",
				hint: "codefleet status " + rec.TaskID,
			}
		}
	}
}

// noteWait prints a note that says what the task waits for, unless it has begun.
func (r *foreground) noteWait(ctx context.Context, rec client.Record) {
	note, _ := r.a.waitNote(ctx, r.client, rec)
	r.mu.Lock()
	defer r.mu.Unlock()
	if note == "" || r.begun {
		return
	}
	r.line.clear()
	fmt.Fprintln(r.a.stderr, note)
}

// askDetach asks whether the task should continue without this command. It returns false without asking if there is no
// terminal, or if the fleet ends with this command.
func (r *foreground) askDetach() bool {
	if r.private != nil || !isTerminal(r.a.stdin) || !isTerminal(r.a.stderr) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.clear()
	fmt.Fprint(r.a.stderr, "\ncancel the task, or detach from it? [c/D] ")
	reply := make(chan string, 1)
	go func() { // leaks after a second Ctrl-C; the process is about to exit
		line, _ := bufio.NewReader(r.a.stdin).ReadString('\n')
		reply <- line
	}()
	select {
	case line := <-reply:
		return !strings.HasPrefix(strings.ToLower(strings.TrimSpace(line)), "c")
	case <-r.a.signals:
		fmt.Fprintln(r.a.stderr)
		return true
	}
}

// show prints one event of the task.
func (r *foreground) show(e client.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = true
	if e.Stage == "approval" && e.Text != "" { // also with -o json, because the task waits until the user approves
		r.line.clear()
		fmt.Fprintln(r.a.stderr, "note:", printable(e.Text)+":", r.a.withFlags("codefleet approve "+e.TaskID))
	}
	if r.a.output == "json" {
		return nil
	}
	if e.Stream == "" {
		stage, _, _ := strings.Cut(e.Stage+" "+e.Text, "\n")
		r.line.show(strings.TrimSpace(stage))
		return nil
	}
	r.line.clear()
	if e.Run != r.current {
		if r.current > 0 {
			fmt.Fprintf(r.a.stderr, "note: run %d begins\n", e.Run)
		}
		r.current, r.stdout, r.stderr = e.Run, liveStream{}, liveStream{}
	}
	if e.Stream == "stderr" {
		return r.stderr.print(r.a.stderr, e.Text)
	}
	return r.stdout.print(r.a.stdout, e.Text)
}

// rest returns the parts of the output that were not printed live.
func (r *foreground) rest(res *client.Result) (output, stderr string) {
	output, wholeOutput := r.stdout.rest(res.Output)
	stderr, wholeStderr := r.stderr.rest(res.Stderr)
	if r.a.output != "json" && (!wholeOutput || !wholeStderr) {
		fmt.Fprintln(r.a.stderr, "note: some events were lost; the whole output:",
			r.a.withFlags("codefleet result "+res.TaskID))
	}
	return output, stderr
}

// liveStream prints one output stream while the task runs, and remembers what it has printed.
type liveStream struct{ printed strings.Builder }

func (s *liveStream) print(w io.Writer, text string) error {
	s.printed.WriteString(text)
	_, err := io.WriteString(w, text)
	return err
}

// rest returns the part of the whole stream that was not printed. If the stream does not begin with what was
// printed, it returns the whole stream and false.
func (s *liveStream) rest(whole string) (string, bool) {
	return strings.CutPrefix(whole, s.printed.String())
}

// save writes the requested artifacts below the working directory. It ignores other artifacts of the task: a program
// must not choose which local files it replaces.
func (r *foreground) save(ctx context.Context, res *client.Result, patterns []string) error {
	if len(patterns) == 0 {
		return nil
	}
	root, err := os.OpenRoot(".")
	if err != nil {
		return usage("save artifacts: %v", err)
	}
	defer root.Close()
	saved, refused := 0, []string(nil)
	for _, a := range res.Artifacts {
		if !slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, a.Path); return ok }) {
			continue
		}
		if dirsync.LeadsToGit(a.Path) {
			refused = append(refused, a.Path)
			continue
		}
		if err := r.saveOne(ctx, root, res.TaskID, a); err != nil {
			f := &failure{code: errcode.ExitFailed, message: "save artifact " + printable(a.Path), err: err}
			if r.private == nil {
				f.hint = "codefleet artifacts get " + res.TaskID + " --dir DIRECTORY"
			}
			return f
		}
		fmt.Fprintf(r.a.stderr, "saved %s (%s)\n", printable(a.Path), text.Count(a.Bytes, "byte"))
		saved++
	}
	if len(refused) > 0 {
		return &failure{
			code:    errcode.ExitFailed,
			message: "no artifact is saved as .git or below it: " + summarizePaths(refused, len(refused)),
		}
	}
	if saved == 0 && res.Status == client.Succeeded {
		fmt.Fprintln(r.a.stderr, "note: no artifact saved: no artifact matches --out")
	}
	return nil
}

// saveOne writes an artifact to a temporary file and renames that, so that an existing file is replaced only by the
// complete artifact.
func (r *foreground) saveOne(ctx context.Context, root *os.Root, id string, a client.Artifact) error {
	from, err := r.client.Artifact(ctx, id, a.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	err = dirsync.MakeDirs(root, path.Dir(a.Path), nil)
	if err == nil {
		err = rejectDir(root, a.Path)
	}
	if err != nil {
		return err
	}
	temp := path.Join(path.Dir(a.Path), ".codefleet-tmp-"+strings.ToLower(rand.Text()))
	to, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer r.line.clear()
	count := &counter{total: a.Bytes, report: r.line.transfer("save " + printable(a.Path))}
	_, err = io.Copy(to, io.TeeReader(from, count))
	if err = cmp.Or(err, to.Close()); err == nil {
		err = root.Rename(temp, a.Path)
	}
	if err != nil {
		_ = root.Remove(temp)
	}
	return err
}
