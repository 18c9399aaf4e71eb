package faulttest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/schemas"
)

// The files in which programs count; see counting.
const (
	counterFile = "counter.txt"
	counterKeys = "state.json"
)

// counting is the program of the fault tests. It creates the task's file, which must not exist yet, and increments a
// counter: in counter.txt, or in state.json, to which it also adds a key for the task.
const counting = `
name = inputs["name"]
with open(name, "x") as f:
    f.write(name)
` + incrementing

// incrementing is the part of counting that increments the counter.
const incrementing = `
import json, os, time

def read(path, default):
    try:
        with open(path) as f:
            return json.load(f)
    except FileNotFoundError:
        return default

def write(path, value):
    with open(path + ".new", "w") as f:
        json.dump(value, f)
    os.replace(path + ".new", path)

before = read("%[1]s", 0 if "%[1]s" == "counter.txt" else {"count": 0})
time.sleep(inputs["sleep_s"])
if "%[1]s" == "counter.txt":
    write("%[1]s", before + 1)
else:
    before["count"] += 1
    before[name] = True
    write("%[1]s", before)
`

// verdict is the result of an audit.
type verdict struct {
	problems []string
	lost     int // missing completions and effects
	twice    int // surplus completions and effects
	redriven int // dead letters that were queued again
	runs     int // runs of all tasks together
	kept     int // commits that kept both versions of a counter
	ended    map[schemas.Status]int
}

func (v *verdict) problem(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

func (v *verdict) String() string {
	return fmt.Sprintf("%d runs, statuses %v, %d lost, %d twice, %d conflicts kept, %d problems", v.runs, v.ended,
		v.lost, v.twice, v.kept, len(v.problems))
}

// audit compares all revisions of the records, and the workspaces' commits and files, with the submitted tasks. paths
// has the counter's path in each workspace.
func (f *fleet) audit(t *testing.T, tasks []submitted, paths map[state.Ref]string) *verdict {
	t.Helper()
	v := &verdict{ended: map[schemas.Status]int{}}
	f.auditRecords(t, v, tasks)
	for ref, path := range paths {
		inRef := slices.DeleteFunc(slices.Clone(tasks), func(s submitted) bool { return s.ref != ref })
		f.auditWorkspace(t, v, ref, inRef, path)
	}
	return v
}

func (f *fleet) auditRecords(t *testing.T, v *verdict, tasks []submitted) {
	t.Helper()
	ends := map[string]int{}
	for _, rec := range f.everyRecord(t) {
		if !rec.Status.Terminal() {
			continue
		}
		if rec.Status == schemas.Dead && f.redrives {
			v.redriven++
			continue
		}
		ends[rec.TaskID]++
		v.runs += rec.Run
		v.ended[rec.Status]++
		if rec.Status != schemas.Succeeded {
			v.problem("task %s (%s) ended %s after %d runs, want succeeded: %v",
				rec.EventID, rec.TaskID, rec.Status, rec.Run, rec.Result.Error)
		}
	}
	for _, task := range tasks {
		if n := ends[task.id]; n != 1 {
			v.wantOne(n)
			v.problem("task %s (%s) has %d terminal records, want 1", task.name, task.id, n)
		}
	}
}

// wantOne adds the difference between n and 1 to lost or twice.
func (v *verdict) wantOne(n int) {
	v.twice += max(0, n-1)
	v.lost += max(0, 1-n)
}

// dial connects to the queue.
func (f *fleet) dial() (*nats.Conn, error) {
	return nats.Connect("nats://"+strings.TrimPrefix(f.env[0], "NATS_ADDR="),
		nats.UserInfo(embedded.FleetUser, password),
		nats.CustomInboxPrefix("_INBOX."+embedded.FleetUser))
}

// stream opens a stream of the queue for the rest of the test.
func (f *fleet) stream(t *testing.T, name string) jetstream.Stream {
	t.Helper()
	nc, err := f.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// everyRecord returns all revisions of all records, in the order in which they were written.
func (f *fleet) everyRecord(t *testing.T) []schemas.Record {
	t.Helper()
	stream := f.stream(t, "KV_TASKSTATE")
	var all []schemas.Record
	for seq := stream.CachedInfo().State.FirstSeq; seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		var rec schemas.Record
		if err = errors.Join(err, json.Unmarshal(msg.Data, &rec)); err != nil {
			t.Fatal(err)
		}
		all = append(all, rec)
	}
	return all
}

func (f *fleet) auditWorkspace(t *testing.T, v *verdict, ref state.Ref, tasks []submitted, path string) {
	t.Helper()
	log, err := history.Log(t.Context(), f.store.Repo(), ref, 0)
	if err != nil {
		t.Fatal(err)
	}
	commits, counted := map[string]int{}, 0
	files := f.files(t, ref)
	for _, c := range log {
		commits[c.TaskID]++
		if slices.Contains(c.Conflicts, path) {
			v.kept++
			delete(files, path+".conflict-"+c.TaskID) // there is no copy if both versions were the same
		} else {
			counted++
		}
	}
	for _, task := range tasks {
		if n := commits[task.id]; n != 1 {
			v.wantOne(n)
			v.problem("task %s (%s) has %d commits in %s, want 1", task.name, task.id, n, ref)
		}
		if task.name == "" {
			continue
		}
		if got := files[task.name]; got != task.name {
			v.lost++
			v.problem("file %s of %s contains %q, want its name", task.name, ref, got)
		}
		delete(files, task.name)
	}
	f.auditCounter(v, ref, tasks, path, files[path], counted)
	delete(files, path)
	for name := range files {
		v.problem("no task created file %s of %s", name, ref)
	}
}

// auditCounter checks that the counter equals the number of commits, and that no key was lost.
func (f *fleet) auditCounter(v *verdict, ref state.Ref, tasks []submitted, path, content string, counted int) {
	count := 0
	if path == counterFile {
		if err := json.Unmarshal([]byte(content), &count); err != nil {
			v.problem("%s of %s: %v", path, ref, err)
		}
	} else {
		var keys map[string]any
		if err := json.Unmarshal([]byte(content), &keys); err != nil {
			v.problem("%s of %s: %v", path, ref, err)
		}
		n, _ := keys["count"].(float64)
		count = int(n)
		if found := len(keys) - 1; found != counted {
			v.problem("%s of %s has the keys of %d tasks, want %d", path, ref, found, counted)
		}
	}
	if count != counted {
		v.lost += max(0, counted-count)
		v.twice += max(0, count-counted)
		v.problem("counter %s of %s = %d, want %d of %d tasks", path, ref, count, counted, len(tasks))
	}
}

// files returns the contents of a workspace's files, by path.
func (f *fleet) files(t *testing.T, ref state.Ref) map[string]string {
	t.Helper()
	dir := t.TempDir()
	tree, err := f.store.Tree(dir, ref)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := f.store.Checkout(t.Context(), tree, nil); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, relErr := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = string(data)
		return errors.Join(err, relErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
