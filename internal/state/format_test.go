package state_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// recorded returns a workspace of 20 generations as the first release stored it.
func recorded(t *testing.T) *mem.Objects {
	t.Helper()
	f, err := os.Open("testdata/format1.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]byte
	if err := json.NewDecoder(r).Decode(&all); err != nil {
		t.Fatal(err)
	}
	bucket := mem.New()
	for key, data := range all {
		if strings.HasSuffix(key, "/HEAD") {
			_, err = bucket.CompareAndSwap(t.Context(), key, "", data)
		} else {
			err = bucket.Put(t.Context(), key, data, objects.Sum(data))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return bucket
}

// TestFirstFormat checks that workspaces of earlier releases can be read and used.
func TestFirstFormat(t *testing.T) {
	want := map[string]string{
		"dir": "dir", "large": statetest.Random(9, 5<<10), "link": "-> large",
		"state.json": `{"a": 1}`,
	}
	for i := 14; i <= 20; i++ {
		want[fmt.Sprintf("dir/f%02d", (i-1)%7)] = fmt.Sprint("generation ", i)
	}
	for name, opts := range map[string]state.Options{
		"default": {}, "eager compaction": {Compaction: statetest.Eager},
		"encrypted": statetest.Encrypted,
	} {
		t.Run(name, func(t *testing.T) {
			bucket := recorded(t)
			store := state.New(bucket, opts)
			report, err := maintenance.Check(t.Context(), store.Repo(), ref, maintenance.CheckOptions{ReadData: true})
			if err != nil || len(report.Problems) > 0 || report.Versions != 20 {
				t.Errorf("Check() = %+v, %v, want 20 versions and no problems", report, err)
			}
			if out, err := maintenance.Repair(t.Context(), store.Repo(), ref,
				maintenance.RepairOptions{ReadData: true}); err != nil || !out.Commit.NoChange {
				t.Errorf("Repair() = %+v, %v, want no change", out, err)
			}
			if pins, err := history.Pins(t.Context(), store.Repo(), ref); err != nil || len(pins) != 1 ||
				pins[0] != (history.Pinned{Name: "first", Generation: 1}) {
				t.Errorf("Pins() = %v, %v, want first at generation 1", pins, err)
			}
			w := statetest.NewWorker(t, bucket, ref, opts)
			if v := w.Checkout(); v.Generation != 20 {
				t.Errorf("Checkout() = %+v, want generation 20", v)
			}
			w.Want(want)
			w.Write("new", "1")
			if c := w.Commit("task-21"); c.Generation != 21 || len(c.Changed) != 1 {
				t.Errorf("Commit() = %+v, want generation 21", c)
			}
			after := maps.Clone(want)
			after["new"] = "1"
			fresh := statetest.NewWorker(t, bucket, ref, opts)
			fresh.Checkout()
			fresh.Want(after)
			log, err := history.Log(t.Context(), fresh.Store.Repo(), ref, 0)
			if err != nil || len(log) != 21 || log[20].TaskID != "task-1" {
				t.Errorf("Log() = %d commits, %v, want 21", len(log), err)
			}
		})
	}
}
