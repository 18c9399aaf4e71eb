package workermain_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/up/uptest"
	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/plugin/workermain"
)

// workerProcess runs a worker in a separate process, with the environment that WORKER_ENV lists.
func workerProcess(ctx context.Context, ready func()) error {
	ready()
	return workermain.Run(ctx, workermain.Config{
		Args: []string{"--fleet", os.Getenv("FLEET")}, Env: strings.Split(os.Getenv("WORKER_ENV"), "\n"),
	}, killer{})
}

// killer is a plugin that kills its worker with SIGKILL when a program with the label kill has ended, before its files
// are committed, if the label names the worker.
type killer struct{}

func (killer) Name() string { return "killer" }

func (killer) Result(_ context.Context, t plugin.Task, _ *plugin.Result) error {
	if name := t.Data.Labels["kill"]; name != "" && name == os.Getenv("WORKER_NAME") {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return nil
}

// processWorker starts a worker in a separate process, with the data directory of a host.
func (f fleet) processWorker(t *testing.T, name, host string) *faulttest.Process {
	t.Helper()
	dir := filepath.Join(f.data, host)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	env := append(slices.Clip(f.env), "CODEFLEET_DATA="+dir, "CODEFLEET_WORKER_NAME="+name,
		"CODEFLEET_QUEUE_ACK_WAIT=5s", "CODEFLEET_OPTIMIZATIONS_SANDBOX_POOL_SIZE=1")
	return faulttest.Start(t, "worker", "FLEET="+f.file, "WORKER_NAME="+name, "WORKER_ENV="+strings.Join(env, "\n"))
}

// The programs of TestSessionsOverWorkers. The second continues from the checkpoint of the first; the others read the
// logs and the state of earlier sessions.
const (
	beginWork = `
import json
from client.session import checkpoint
open("/workspace/data.csv", "w").write("50\n")
json.dump({"step": 1, "results": [50]}, open("/workspace/state/results.json", "w"))
checkpoint(step=1, context="first of three")
"begun"`
	continueWork = `
import json
from client.session import checkpoint, resume
done = resume()
state = json.load(open("/workspace/state/results.json"))
state["step"] += 1
state["results"].append(60)
json.dump(state, open("/workspace/state/results.json", "w"))
open("/workspace/data.csv", "a").write("60\n")
checkpoint(step=done["step"] + 1)
state["step"]`
	readOther = `
import json
log = json.load(open("/workspace/sessions/session_001.json"))
state = json.load(open("/workspace/state/results.json"))
json.dump({"total": sum(state["results"])}, open("/workspace/state/total.json", "w"))
[log["session_id"], len(log["tasks"]), log["tasks"][-1]["result"], log["checkpoint"]["step"], log["state_files"]]`
	finishWork = `
import json, os
logs = {name: json.load(open("/workspace/sessions/" + name + ".json")) for name in ("session_001", "session_002")}
{"lines": open("/workspace/data.csv").read().split(), "total": json.load(open("/workspace/state/total.json"))["total"],
 "tasks": [len(log["tasks"]) for log in logs.values()], "layout": sorted(os.listdir("/workspace"))}`
)

// TestSessionsOverWorkers checks that state, files and logs of three sessions are complete after they ran on three
// workers, which are separate processes with the data directories of two hosts. The first worker is killed with SIGKILL
// after a program has run and before its files are committed.
func TestSessionsOverWorkers(t *testing.T) {
	conf := uptest.Config(t)
	conf.Queue.AckWait = 5 * time.Second
	f := startFleetWith(t, conf)
	submit := func(session, code, kill string) client.Record {
		t.Helper()
		s := client.Submission{Task: client.Task{Code: code}, Session: session}
		if kill != "" {
			s.Labels = map[string]string{"kill": kill}
		}
		r, err := f.client.Submit(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	wait := func(r client.Record, worker, result string) {
		t.Helper()
		r, err := f.client.Wait(t.Context(), r.TaskID)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != client.Succeeded || r.Worker != worker || string(r.Result.Result) != result {
			t.Fatalf("task of %s: %s on %s with %s, %+v; want %s on %s", r.Session, r.Status, r.Worker,
				r.Result.Result, r.Result.Error, result, worker)
		}
	}
	w1 := f.processWorker(t, "w1", "a")
	wait(submit("session_001", beginWork, ""), "w1", `"begun"`)
	interrupted := submit("session_001", continueWork, "w1")
	if err := w1.Killed(); err != nil {
		t.Fatal(err)
	}
	w2 := f.processWorker(t, "w2", "b")
	wait(interrupted, "w2", "2")
	wait(submit("session_002", readOther, ""), "w2",
		`["session_001",2,"2",2,["/workspace/state/results.json"]]`)
	if err := w2.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	w3 := f.processWorker(t, "w3", "a") // removes what w1 left behind
	last := submit("session_003", finishWork, "")
	wait(last, "w3", `{"lines":["50","60"],"total":110,"tasks":[2,1],`+
		`"layout":["client","data.csv","servers","sessions","skills","state"]}`)
	if err := w3.Stop(time.Minute); err != nil {
		t.Error(err)
	}

	type entry struct{ Session, Result, Status string }
	var got []entry
	for _, name := range []string{"session_001", "session_002", "session_003"} {
		log, err := f.client.Session(t.Context(), name, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range log.Tasks {
			got = append(got, entry{name, task.Result, string(task.Status)})
		}
	}
	logged := `["session_001",2,"2",2,["/workspace/state/results.json"]]`
	want := []entry{
		{"session_001", "begun", "succeeded"},
		{"session_001", "2", "succeeded"},
		{"session_002", logged, "succeeded"},
		{"session_003", got[len(got)-1].Result, "succeeded"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("logs of the sessions (-want +got):\n%s", d)
	}
	s, err := f.client.GetState(t.Context(), "", "state/results.json")
	var state struct {
		Step    int
		Results []int
	}
	if err == nil {
		err = json.Unmarshal(s.Data, &state)
	}
	if err != nil || state.Step != 2 || !cmp.Equal(state.Results, []int{50, 60}) {
		t.Errorf("state/results.json = %+v, %v; want step 2, and each result once", state, err)
	}
	r, err := f.client.Get(t.Context(), interrupted.TaskID)
	if err != nil || r.Run != 2 {
		t.Errorf("the interrupted task: run %d, %v; want the second", r.Run, err)
	}
}
