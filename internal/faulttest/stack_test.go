// These tests run a whole fleet with faults: embedded NATS, embedded S3 and workers with real sandboxes are separate
// processes, which are killed and stopped at random. A seed determines the order of the faults.
//
//	go test ./internal/faulttest                                  # about a minute
//	go test ./internal/faulttest -run Faults -args -faults.tasks 1500
package faulttest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/schemas"
)

// faultTimePerTask is how long faults are injected per task: in all, about as long as the tasks take without faults.
const faultTimePerTask = 80 * time.Millisecond

// Every task completes once and its effect is applied once, whatever is killed, stopped or restarted.
func TestFaults(t *testing.T) {
	f := newFleet(t)
	for range 3 {
		f.work(t, 2)
	}
	paths := map[state.Ref]string{}
	var refs []state.Ref
	for _, tenant := range []string{"acme", "globex", "initech"} {
		for workspace, path := range map[string]string{"files": counterFile, "keys": counterKeys} {
			paths[state.Ref{Tenant: tenant, Workspace: workspace}] = path
		}
		refs = append(refs, state.Ref{Tenant: tenant, Workspace: "files"}, state.Ref{Tenant: tenant, Workspace: "keys"})
	}
	faults := []faulttest.Fault{
		{Name: "kill -9 of NATS", Weight: 1, Do: f.nats.KillAndRestart},
		{Name: "kill -9 of S3", Weight: 1, Do: f.s3.KillAndRestart},
	}
	for _, w := range f.workers {
		faults = append(faults,
			faulttest.Fault{Name: "kill -9 of a worker", Weight: 1, Do: w.KillAndRestart},
			faulttest.Fault{Name: "SIGSTOP of a worker", Weight: 1, Do: w.Freeze(ackWait, 2*ackWait)})
	}
	faulty, endFaults := context.WithTimeout(t.Context(), time.Duration(*faultTasks)*faultTimePerTask)
	defer endFaults()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		counts := faulttest.InjectRandomly(faulty, t, f.seed, 1100*time.Millisecond, faults...)
		t.Logf("faults: %v", counts)
		if len(counts) == 0 {
			t.Error("no fault was injected")
		}
	})
	rng := rand.New(rand.NewPCG(f.seed, 1))
	tasks := make([]submitted, *faultTasks)
	pace := time.NewTicker(45 * time.Millisecond)
	defer pace.Stop()
	for i := range tasks {
		tasks[i] = newTask(refs[rng.IntN(len(refs))], i)
		f.submit(t, tasks[i], fmt.Sprintf(counting, paths[tasks[i].ref]), rng.Float64()*0.2)
		<-pace.C
	}
	for _, task := range tasks[:len(tasks)*9/10] {
		f.wait(t, task)
	}
	endFaults()
	wg.Wait()
	began := time.Now()
	for _, task := range tasks {
		f.wait(t, task)
	}
	t.Logf("the last tasks ended %.1f s after the end of the faults", time.Since(began).Seconds())
	v := f.audit(t, tasks, paths)
	t.Logf("%d tasks, %v", len(tasks), v)
	for _, p := range v.problems {
		t.Error(p)
	}
}

// Without the condition on the swap of HEAD, the same audit finds lost commits.
func TestFaultsMutant(t *testing.T) {
	f := newFleet(t)
	for range 2 {
		f.work(t, 2, "MUTANT="+mutantNoIfMatch)
	}
	ref := state.Ref{Tenant: "acme", Workspace: "files"}
	tasks := make([]submitted, 24)
	for i := range tasks {
		tasks[i] = newTask(ref, i)
		f.submit(t, tasks[i], fmt.Sprintf(counting, counterFile), 0.05)
	}
	for _, task := range tasks {
		f.wait(t, task)
	}
	v := f.audit(t, tasks, map[state.Ref]string{ref: counterFile})
	t.Logf("%d tasks, %v", len(tasks), v)
	if v.lost == 0 {
		t.Error("the audit found no lost commit without If-Match, want some")
	}
}

// laterCommits is how many commits follow a task's commit in the next tests: more than HEAD lists.
const laterCommits = 150

// A worker is killed between the commit and the completion, and more commits follow than HEAD lists. The next worker
// finds the commit and completes the task without executing it again.
func TestTakeoverBehindManyCommits(t *testing.T) {
	f := newFleet(t)
	task := newTask(state.Ref{Tenant: "acme", Workspace: "files"}, 0)
	crasher := f.work(t, 1, "CRASH_AFTER_COMMIT_OF="+task.id)
	f.submit(t, task, fmt.Sprintf(counting, counterFile), 0)
	if err := crasher.Killed(); err != nil {
		t.Fatal(err)
	}
	f.commitUntilForgotten(t, task)
	f.workers = nil // the successor gets the name and the directory of the killed worker, and cleans up
	f.work(t, 1)
	rec := f.wait(t, task)
	if rec.Run != 2 || rec.Result.Workspace.Generation != 1 {
		t.Errorf("completed by run %d with generation %d, want run 2 and generation 1: %+v", rec.Run,
			rec.Result.Workspace.Generation, rec.Result)
	}
	f.checkOnce(t, task)
}

// A worker is stopped before its commit for longer than its lease. Another worker runs the task, many commits follow,
// and the first worker continues: its commit finds the other's.
func TestZombieBehindManyCommits(t *testing.T) {
	f := newFleet(t)
	task := newTask(state.Ref{Tenant: "acme", Workspace: "files"}, 0)
	stopped := filepath.Join(t.TempDir(), "stopped")
	zombie := f.work(t, 1, "STOP_BEFORE_COMMIT_OF="+task.id, "STOPPED="+stopped)
	f.submit(t, task, fmt.Sprintf(counting, counterFile), 0)
	eventually(t, "stop of the worker", func(context.Context) error {
		_, err := os.Stat(stopped)
		return err
	})
	f.work(t, 1)
	rec := f.wait(t, task)
	if rec.Run != 2 || rec.Worker != "w1" {
		t.Errorf("completed by run %d of %s, want run 2 of w1", rec.Run, rec.Worker)
	}
	f.commitUntilForgotten(t, task)
	if err := errors.Join(zombie.Continue(), zombie.Stop(30*time.Second)); err != nil { // it finishes its run first
		t.Fatal(err)
	}
	f.checkOnce(t, task)
}

// commitUntilForgotten commits to the workspace of a task until its HEAD no longer names the task.
func (f *fleet) commitUntilForgotten(t *testing.T, task submitted) {
	t.Helper()
	f.commitMore(t, task.ref, laterCommits)
	head, err := f.bucket.Get(t.Context(), "acme/w/files/HEAD", objects.GetOptions{})
	if err != nil || strings.Contains(string(head.Data), task.id) {
		t.Fatalf("HEAD after %d commits = %s, %v, want it not to list the task", laterCommits, head.Data, err)
	}
}

// checkOnce checks that a task was completed and applied once.
func (f *fleet) checkOnce(t *testing.T, task submitted) {
	t.Helper()
	v := &verdict{ended: map[schemas.Status]int{}}
	f.auditRecords(t, v, []submitted{task})
	for _, p := range v.problems {
		t.Error(p)
	}
	files := f.files(t, task.ref)
	if files[task.name] != task.name || files[counterFile] != "1" {
		t.Errorf("task's file %q, counter %q; want its name and 1", files[task.name], files[counterFile])
	}
	log, err := history.Log(t.Context(), f.store.Repo(), task.ref, 0)
	if err != nil || len(log) != laterCommits+1 || log[laterCommits].TaskID != task.id {
		t.Errorf("Log() = %d commits, %v, want %d, of which the task's is the first", len(log), err, laterCommits+1)
	}
}

// commitMore makes n commits to a workspace, as other tasks would.
func (f *fleet) commitMore(t *testing.T, ref state.Ref, n int) {
	t.Helper()
	tree, err := f.store.Tree(t.TempDir(), ref)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		_, err := f.store.Checkout(t.Context(), tree, nil)
		err = errors.Join(err, tree.WriteFile("later", []byte(strconv.Itoa(i)), 0o644))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.store.Commit(t.Context(), tree,
			state.CommitOptions{TaskID: newTask(ref, 1000+i).id, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
}
