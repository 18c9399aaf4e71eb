package s3_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// killPlan tells a worker process to run one task, and when to die.
type killPlan struct {
	S3    s3.Options
	Dir   string
	Cache string
	Task  string
	At    string // request at which it dies, like "put m"; empty if it does not
	After bool   // die after the response
	Carry bool   // let HEAD carry the commit
}

const killVariable = "CODEFLEET_TEST_KILL"

var killRef = state.Ref{Tenant: "acme", Workspace: "kill"}

// killWorker is the main function of the worker process.
func killWorker(plan killPlan) error {
	bucket, err := s3.Open(plan.S3)
	if err != nil {
		return err
	}
	ctx := context.Background()
	store := state.New(&killer{Objects: bucket, plan: plan},
		state.Options{CacheDir: plan.Cache, Carry: func() bool { return plan.Carry }})
	tree, err := store.Tree(plan.Dir, killRef)
	if err != nil {
		return err
	}
	if done, err := store.Applied(ctx, killRef, plan.Task, time.Unix(1, 0)); done != nil || err != nil {
		return err
	}
	if _, err := store.Checkout(ctx, tree, nil); err != nil {
		return err
	}
	data, err := tree.ReadFile("counter", 100)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	n, _ := strconv.Atoi(string(data))
	if err := tree.WriteFile("counter", []byte(strconv.Itoa(n+1)), 0o644); err != nil {
		return err
	}
	if err := tree.WriteFile("tasks/"+plan.Task, []byte(plan.Task), 0o644); err != nil {
		return err
	}
	_, err = store.Commit(ctx, tree, state.CommitOptions{TaskID: plan.Task, Attempt: 1, Result: json.RawMessage(`1`)})
	return err
}

// killer kills its process with SIGKILL at the request of the plan.
type killer struct {
	objects.Objects
	plan killPlan
	once sync.Once
}

func (k *killer) at(op, key string, after bool) {
	part := "HEAD"
	if !strings.HasSuffix(key, "/HEAD") {
		part = strings.Split(strings.TrimPrefix(key, "acme/w/kill"), "/")[1]
	}
	if op+" "+part == k.plan.At && after == k.plan.After {
		k.once.Do(func() {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		})
	}
}

func (k *killer) Get(ctx context.Context, key string, o objects.GetOptions) (objects.Object, error) {
	k.at("get", key, false)
	defer k.at("get", key, true)
	return k.Objects.Get(ctx, key, o)
}

func (k *killer) Put(ctx context.Context, key string, data []byte, sum objects.Digest) error {
	k.at("put", key, false)
	defer k.at("put", key, true)
	return k.Objects.Put(ctx, key, data, sum)
}

func (k *killer) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	k.at("swap", key, false)
	defer k.at("swap", key, true)
	return k.Objects.CompareAndSwap(ctx, key, old, data)
}

func runKillWorker(t *testing.T, plan killPlan) *os.ProcessState {
	t.Helper()
	plan.S3.Transport = nil // the process makes one
	return runPlan(t, killVariable, plan)
}

// runPlan runs this test binary again, with a plan in an environment variable.
func runPlan(t *testing.T, variable string, plan any) *os.ProcessState {
	t.Helper()
	data, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), variable+"="+string(data))
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || len(out) > 0 {
		t.Fatalf("worker = %v, output %s; want it to run without output", err, out)
	}
	return cmd.ProcessState
}

// TestKill kills a worker at every request of a task, before the request and after its response. Others must see the
// old or the new version, and a second attempt in the same directory must apply the task once.
func TestKill(t *testing.T) {
	t.Run("stored", func(t *testing.T) {
		testKill(t, false, []string{"get HEAD", "get m", "get p", "put p", "put m", "swap HEAD"})
	})
	t.Run("carried", func(t *testing.T) { testKill(t, true, []string{"get HEAD", "get m", "get p", "swap HEAD"}) })
}

func testKill(t *testing.T, carry bool, points []string) {
	t.Helper()
	opts := gateway(t)
	dir, cache := t.TempDir(), t.TempDir()
	want := map[string]string{"tasks": "dir"}
	tasks := 0
	run := func(at string, after bool) {
		tasks++
		plan := killPlan{
			S3: opts, Dir: dir, Cache: cache, Task: fmt.Sprintf("task-%d", tasks), At: at, After: after, Carry: carry,
		}
		if at != "" {
			status := runKillWorker(t, plan).Sys().(syscall.WaitStatus)
			if !status.Signaled() || status.Signal() != syscall.SIGKILL {
				t.Fatalf("%s, after %v: worker ended with %v, want it killed", at, after, status)
			}
			checkOldOrNew(t, opts, want, plan, tasks)
		}
		plan.At = ""
		if state := runKillWorker(t, plan); state.ExitCode() != 0 {
			t.Fatalf("%s, after %v: second attempt ended with %v, want success", at, after, state)
		}
		want["counter"] = strconv.Itoa(tasks)
		want["tasks/"+plan.Task] = plan.Task
		w := statetest.NewWorker(t, open(t, opts), killRef, state.Options{})
		w.Checkout()
		w.Want(want)
	}
	run("", false)
	for _, at := range points {
		for _, after := range []bool{false, true} {
			if at == "get m" || at == "get p" { // only a worker without a cache and a tree sends these
				dir, cache = t.TempDir(), t.TempDir()
			}
			run(at, after)
		}
	}
}

func checkOldOrNew(t *testing.T, opts s3.Options, old map[string]string, plan killPlan, tasks int) {
	t.Helper()
	w := statetest.NewWorker(t, open(t, opts), killRef, state.Options{})
	w.Checkout()
	applied := plan.At == "swap HEAD" && plan.After
	done, err := w.Store.Applied(t.Context(), killRef, plan.Task, time.Time{})
	if err != nil || (done != nil) != applied {
		t.Errorf("killed at %s, after %v: Applied() = %+v, %v, want found: %v", plan.At, plan.After, done, err, applied)
	}
	if got := w.Files(); applied != (got["counter"] == strconv.Itoa(tasks)) || !applied && cmp.Diff(old, got) != "" {
		t.Errorf("killed at %s, after %v: files are neither the old nor the new ones: %v", plan.At, plan.After, got)
	}
}
