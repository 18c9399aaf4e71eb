package statetest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/state"
)

func testOnce(t *testing.T, ws *workspace) {
	a, b := ws.worker(t), ws.worker(t)
	a.Checkout()
	b.Checkout()
	a.Write("n", "1")
	b.Write("n", "1 from a late attempt")
	big := json.RawMessage(`"` + strings.Repeat("result ", 10_000) + `"`)
	if _, err := a.Store.Commit(t.Context(), a.Tree,
		state.CommitOptions{TaskID: "task-1", Attempt: 1, Result: big}); err != nil {
		t.Fatal(err)
	}
	c, err := b.Store.Commit(t.Context(), b.Tree,
		state.CommitOptions{TaskID: "task-1", Attempt: 2, Result: json.RawMessage(`"2"`)})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Already || c.Generation != 1 || c.Attempt != 1 || string(c.Result) != string(big) {
		t.Errorf("second Commit() = already %v, generation %d, attempt %d, %d bytes of result; want the first one's",
			c.Already, c.Generation, c.Attempt, len(c.Result))
	}
	b.Checkout()
	b.Want(map[string]string{"n": "1"})
	c = b.Commit("task-1")
	if !c.NoChange {
		t.Errorf("Commit() without changes = %+v, want no change", c)
	}
	done, err := b.Store.Applied(t.Context(), ws.ref, "task-1", time.Now().Add(-time.Hour))
	if err != nil || done == nil || string(done.Result) != string(big) {
		t.Errorf("Applied() = %v, %v, want the first attempt's commit", done, err)
	}
}

func testAppliedLongAgo(t *testing.T, ws *workspace) {
	a := ws.worker(t)
	start := time.Now()
	const commits = 130 // more than HEAD lists
	for i := range commits {
		a.Checkout()
		a.Write("counter", strconv.Itoa(i))
		a.Commit(fmt.Sprintf("task-%020d", i))
	}
	b := ws.worker(t)
	for _, i := range []int{0, 1, 40, commits - 1} {
		id := fmt.Sprintf("task-%020d", i)
		c, err := b.Store.Applied(t.Context(), ws.ref, id, start)
		if err != nil || c == nil || c.TaskID != id || c.Generation != int64(i+1) || string(c.Result) != `"`+id+`"` {
			t.Errorf("Applied(%s) = %+v, %v, want generation %d", id, c, err, i+1)
		}
	}
	if c, err := b.Store.Applied(t.Context(), ws.ref, "never", time.Time{}); c != nil || err != nil {
		t.Errorf("Applied(never) = %+v, %v, want nil", c, err)
	}
	b.Checkout()
	b.Want(map[string]string{"counter": strconv.Itoa(commits - 1)})
}
