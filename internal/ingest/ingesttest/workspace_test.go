package ingesttest_test

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

func TestClientState(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	both := interfaces(t, f)
	c := both["http"]
	s, err := c.GetState(t.Context(), "", "")
	if err != nil || s.Exists || string(s.Data) != "{}" || s.ETag != client.NoState {
		t.Fatalf("GetState without a document = %+v, %v; want {} and NoState", s, err)
	}
	s.Data = json.RawMessage(`{"step": 1}`)
	first, err := c.SaveState(t.Context(), s)
	if err != nil || !first.Exists || first.File != "state.json" || first.Generation != 1 {
		t.Fatalf("SaveState = %+v, %v; want state.json in generation 1", first, err)
	}
	if _, err := c.SaveState(t.Context(), s); errorCode(err) != "state_conflict" {
		t.Errorf("SaveState over a new document = %v, want state_conflict", err)
	}
	got, err := c.GetState(t.Context(), "main", "state.json")
	if err != nil || !got.Exists || got.ETag != first.ETag || !strings.Contains(string(got.Data), `"step": 1`) {
		t.Errorf("GetState = %+v, %v, want ETag %s", got, err, first.ETag)
	}
	got.Data = json.RawMessage(`{"step": 2}`)
	if got, err = c.SaveState(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	first.Data = json.RawMessage(`{"step": 3}`)
	if _, err := c.SaveState(t.Context(), first); errorCode(err) != "state_conflict" {
		t.Errorf("SaveState of a stale version = %v, want state_conflict", err)
	}
	first.ETag = ""
	if _, err := c.SaveState(t.Context(), first); err != nil {
		t.Errorf("SaveState without a condition = %v, want nil", err)
	}
	y := client.State{Workspace: "lab", File: "state/a.yaml", Data: json.RawMessage(`{"a": [1, "x"]}`)}
	if _, err := c.SaveState(t.Context(), y); err != nil {
		t.Fatal(err)
	}
	if got, err := c.GetState(t.Context(), "lab", "state/a.yaml"); err != nil || string(got.Data) != `{"a":[1,"x"]}` {
		t.Errorf("GetState of YAML = %s, %v; want it as JSON", got.Data, err)
	}
	for _, name := range []string{
		"../state.json", "/etc/passwd", "a/../../x.json", "x.txt", "sessions/x.json",
		strings.Repeat("n", 300) + ".json",
	} {
		if _, err := c.GetState(t.Context(), "", name); errorCode(err) != "bad_state_file" {
			t.Errorf("GetState(%.40q) = %v, want bad_state_file", name, err)
		}
		if _, err := c.SaveState(t.Context(),
			client.State{File: name, Data: json.RawMessage("{}")}); errorCode(err) != "bad_state_file" {
			t.Errorf("SaveState(%.40q) = %v, want bad_state_file", name, err)
		}
	}
	if _, err := both["nats"].GetState(t.Context(), "", ""); errorCode(err) != "http_only" {
		t.Errorf("GetState over NATS = %v, want http_only", err)
	}
}

func TestClientWorkspace(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	c := interfaces(t, f)["http"]
	w := c.Workspace("")
	read := func(version, path string, offset int64) string {
		t.Helper()
		r, err := w.Open(t.Context(), version, path, offset)
		if err != nil {
			return errorCode(err)
		}
		defer r.Close()
		data, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	if list, g, err := w.Files(t.Context(), "", ""); err != nil || len(list) != 0 || g != 0 {
		t.Errorf("Files of an empty workspace = %v, %d, %v; want none and generation 0", list, g, err)
	}
	done, err := w.Put(t.Context(), "dir/é 1%.txt", strings.NewReader("one"), client.NoState)
	if err != nil || done.Generation != 1 || !slices.Equal(done.Changed, []string{"dir", "dir/é 1%.txt"}) {
		t.Fatalf("Put = %+v, %v; want generation 1 with two changed paths", done, err)
	}
	if _, err := w.Put(t.Context(), "dir/é 1%.txt", strings.NewReader("x"),
		client.NoState); errorCode(err) != "precondition_failed" {
		t.Errorf("Put of an existing file = %v, want precondition_failed", err)
	}
	list, g, err := w.Files(t.Context(), "", "")
	if err != nil || g != 1 || len(list) != 2 || list[1].Path != "dir/é 1%.txt" || list[1].Bytes != 3 {
		t.Fatalf("Files = %+v, %d, %v; want two paths of generation 1", list, g, err)
	}
	if _, err := w.Put(t.Context(), list[1].Path, strings.NewReader("two"), list[1].ETag); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Pin(t.Context(), "before", "1"); err != nil {
		t.Fatal(err)
	}
	if got := read("before", list[1].Path, 0) + read("", list[1].Path, 1); got != "onewo" {
		t.Errorf("read %q, want onewo", got)
	}
	if got := read("", "none", 0) + read("", "../x", 0); got != "unknown_filebad_path" {
		t.Errorf("read of invalid paths = %q, want unknown_file and bad_path", got)
	}
	diff, err := w.Diff(t.Context(), "before", "")
	if err != nil || len(diff) != 1 || diff[0] != (client.PathChange{Path: list[1].Path, Op: "modified", Bytes: 3}) {
		t.Errorf("Diff = %+v, %v; want the modified file", diff, err)
	}
	if done, err = w.Restore(t.Context(), "before", "back"); err != nil || done.Generation != 3 ||
		done.Message != "back" {
		t.Errorf("Restore = %+v, %v; want generation 3 with the message", done, err)
	}
	if done, err = w.Fork(t.Context(), "2", "copy"); err != nil || done.Generation != 1 {
		t.Errorf("Fork = %+v, %v; want generation 1", done, err)
	}
	if _, err = w.Fork(t.Context(), "", "copy"); errorCode(err) != "workspace_exists" {
		t.Errorf("Fork again = %v, want workspace_exists", err)
	}
	if log, err := w.Log(t.Context(), 2); err != nil || len(log) != 2 || log[0].Generation != 3 {
		t.Errorf("Log = %+v, %v; want the latest 2 commits", log, err)
	}
	if found, err := w.Check(t.Context(), client.CheckOptions{ReadData: true}); err != nil || found.Versions != 3 ||
		len(found.Problems) != 0 {
		t.Errorf("Check = %+v, %v; want 3 versions without problems", found, err)
	}
	if done, err := w.Repair(t.Context(),
		client.RepairOptions{ReadData: true}); err != nil || !done.Commit.NoChange ||
		done.Commit.Generation != 3 {
		t.Errorf("Repair = %+v, %v; want no change of generation 3", done, err)
	}
	if pins, err := w.Pins(t.Context()); err != nil || len(pins) != 1 ||
		pins[0] != (client.Pin{Name: "before", Generation: 1}) {
		t.Errorf("Pins = %+v, %v; want one pin", pins, err)
	}
	if err := w.Unpin(t.Context(), "before"); err != nil {
		t.Error(err)
	}
	if _, err := w.Remove(t.Context(), "dir"); err != nil {
		t.Error(err)
	}
	if err := c.Workspace("copy").Delete(t.Context()); err != nil {
		t.Error(err)
	}
	all, err := c.Workspaces(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "main" || all[0].Files != 0 || all[0].Generation != 4 {
		t.Errorf("Workspaces = %+v, %v; want the empty workspace main", all, err)
	}
	r, err := w.Archive(t.Context(), "1", "", "tar")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if data, err := io.ReadAll(r); err != nil || !strings.Contains(string(data), "one") {
		t.Errorf("Archive = %d bytes, %v; want the file", len(data), err)
	}
}
