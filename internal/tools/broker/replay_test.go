package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
)

// The worker dies after three of five calls. The next run replays three and makes two, so that the tool gets
// five in all.
func TestReplayAfterCrash(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.reply["put"] = func(tools.Request) (tools.Result, error) { n++; return text(fmt.Sprint("result ", n)), nil }
	first := w.open()
	for i := range 3 {
		if got, err := w.call(first, "put", fmt.Sprintf(`{"i":%d}`, i)); err != nil ||
			got != fmt.Sprintf(`"result %d"`, i+1) {
			t.Fatalf("call %d = %s, %v; want the next result", i, got, err)
		}
	}
	second := w.next()
	for i := range 5 {
		if got, err := w.call(second, "put", fmt.Sprintf(`{ "i": %d }`, i)); err != nil ||
			got != fmt.Sprintf(`"result %d"`, i+1) {
			t.Errorf("call %d of the second run = %s, %v; want the result of the first run", i, got, err)
		}
	}
	if n != 5 || len(w.made) != 2 {
		t.Errorf("the tool got %d calls, %d of them in the second run, want 5 and 2", n, len(w.made))
	}
	var replayed []bool
	for _, c := range second.Calls() {
		replayed = append(replayed, c.Replayed)
	}
	if want := []bool{true, true, true, false, false}; !slices.Equal(replayed, want) {
		t.Errorf("replayed = %v, want %v", replayed, want)
	}
}

func TestEqualCallsAreNumbered(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.reply["put"] = func(tools.Request) (tools.Result, error) { n++; return text(strconv.Itoa(n)), nil }
	first := w.open()
	for range 2 {
		if _, err := w.call(first, "put", `{}`); err != nil {
			t.Fatal(err)
		}
	}
	second := w.next()
	for _, want := range []string{`"1"`, `"2"`, `"3"`} {
		if got, err := w.call(second, "put", `{}`); err != nil || got != want {
			t.Errorf("put = %s, %v, want %s", got, err, want)
		}
	}
}

func TestFailuresAreReplayed(t *testing.T) {
	w := newWorld(t)
	w.reply["put"] = func(tools.Request) (tools.Result, error) {
		return tools.Result{IsError: true, Content: []tools.Content{{Type: "text", Text: "full"}}}, nil
	}
	_, before := w.call(w.open(), "put", `{}`)
	_, after := w.call(w.next(), "put", `{}`)
	if code(after) != errcode.ToolFailed || before.Error() != after.Error() || len(w.made) != 0 {
		t.Errorf("put failed with %v, then with %v, calls %v; want the same tool_failed, replayed",
			before, after, w.made)
	}
}

// Replaying a result writes its files again, because the first run may have been on another host.
func TestFilesAreReplayed(t *testing.T) {
	w := newWorld(t)
	w.reply["put"] = func(tools.Request) (tools.Result, error) {
		return tools.Result{Content: []tools.Content{{Type: "image", MediaType: "image/png", Data: []byte("png")}}}, nil
	}
	before, err := w.call(w.open(), "put", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	clear(w.files)
	after, err := w.call(w.next(), "put", `{}`)
	if err != nil || after != before || len(w.made) != 0 || len(w.files) != 1 {
		t.Errorf("replayed result = %s, %v, files %v, want %s", after, err, w.files, before)
	}
	for _, data := range w.files {
		if string(data) != "png" {
			t.Errorf("the file contains %q, want png", data)
		}
	}
}

// crash makes a call during which the worker dies.
func (w *world) crash(tool, args string) {
	w.t.Helper()
	died := errors.New("died")
	ctx, die := context.WithCancelCause(w.t.Context())
	was := w.reply[tool]
	w.reply[tool] = func(tools.Request) (tools.Result, error) { die(died); return tools.Result{}, died }
	if _, err := w.open().Call(ctx, broker.Call{Server: "s", Tool: tool, Args: object(args)}); !errors.Is(err, died) {
		w.t.Fatal(err)
	}
	w.reply[tool] = was
}

func TestInDoubt(t *testing.T) {
	for _, test := range []struct {
		tool      string
		corrected bool
		made      bool
	}{{"put", false, false}, {"put", true, false}, {"set", false, true}, {"get", false, true}} {
		w := newWorld(t)
		w.crash(test.tool, `{"location":"x"}`)
		w.cfg.Task.Corrected = test.corrected
		_, err := w.call(w.next(), test.tool, `{"location":"x"}`)
		if (err == nil) != test.made || (len(w.made) == 1) != test.made ||
			(err != nil && code(err) != errcode.InDoubt) {
			t.Errorf("%s, corrected %t: %v, calls %v, want made %t", test.tool, test.corrected, err, w.made, test.made)
		}
	}
}

func TestUnmadeCallsAreMadeLater(t *testing.T) {
	w := newWorld(t)
	w.reply["put"] = func(tools.Request) (tools.Result, error) {
		return tools.Result{}, &tools.UpstreamError{Reason: tools.Down, Err: errors.New("refused")}
	}
	if _, err := w.call(w.open(), "put", `{}`); code(err) != errcode.Unavailable {
		t.Fatal(err)
	}
	w.reply["put"] = nil
	if got, err := w.call(w.next(), "put", `{}`); err != nil || got != `"ok"` {
		t.Errorf("put in the next run = %s, %v; want \"ok\"", got, err)
	}
}

// TestUnmadeCallsAreRecorded checks that a call that was certainly not sent is not in doubt, repeatable or not.
func TestUnmadeCallsAreRecorded(t *testing.T) {
	for _, tool := range []string{"put", "set"} {
		w := newWorld(t)
		w.reply[tool] = func(tools.Request) (tools.Result, error) {
			return tools.Result{}, &tools.UpstreamError{Reason: tools.Down, Err: errors.New("refused")}
		}
		if _, err := w.call(w.open(), tool, `{}`); code(err) != errcode.Unavailable {
			t.Errorf("Call(%s) = %v, want %s", tool, err, errcode.Unavailable)
		}
		var states []broker.CallState
		for _, e := range w.journal {
			states = append(states, e.State)
		}
		if diff := cmp.Diff([]broker.CallState{broker.NotMade}, states); diff != "" {
			t.Errorf("journal after %s (-want +got):\n%s", tool, diff)
		}
	}
}

// A run that makes different calls than the recorded ones must not repeat a mutating call.
func TestDivergedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.open()
		for _, args := range []string{`{"file":"12:00"}`, `{"file":"b"}`} {
			if _, err := w.call(first, "put", args); err != nil {
				t.Fatal(err)
			}
		}
		second := w.next()
		if _, err := w.call(second, "put", `{"file":"12:01"}`); code(err) != errcode.InDoubt ||
			!strings.Contains(err.Error(), "different calls than the one before") {
			t.Errorf("put of another file = %v, want in_doubt", err)
		}
		if got, err := w.call(second, "get", `{"location":"x"}`); err != nil || got != `"ok"` {
			t.Errorf("get, a read-only call = %s, %v; want \"ok\"", got, err)
		}
		synctest.Wait() // for entries that are recorded in the background
		if got, err := w.call(second, "put", `{"file":"b"}`); err != nil || got != `"ok"` || len(w.made) != 1 {
			t.Errorf("put, a recorded call = %s, %v, calls %v; want \"ok\" from the journal", got, err, w.made)
		}
		synctest.Wait()
		w.cfg.Task.Corrected = true
		if _, err := w.call(w.next(), "put", `{"file":"12:02"}`); err != nil {
			t.Errorf("put of a corrected program = %v, want nil", err)
		}
	})
}

// Parallel calls arrive in any order. A new one that arrives before recorded ones waits for them.
func TestParallelReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.open()
		for i := range 3 {
			if _, err := w.call(first, "put", fmt.Sprintf(`{"i":%d}`, i)); err != nil {
				t.Fatal(err)
			}
		}
		second := w.next()
		var wg sync.WaitGroup
		for _, i := range []int{4, 3, 2, 1, 0} {
			wg.Go(func() {
				<-time.After(time.Duration(4-i) * 10 * time.Millisecond)
				if _, err := w.call(second, "put", fmt.Sprintf(`{"i":%d}`, i)); err != nil {
					t.Errorf("call %d = %v, want nil", i, err)
				}
			})
		}
		wg.Wait()
		if len(w.made) != 2 {
			t.Errorf("calls %v, want two new ones", w.made)
		}
	})
}

// No matter when and how often the worker dies, a mutating call is never made twice. If the program ends
// without a call in doubt, each mutating call was made once.
func TestMutatingCallsAreMadeOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		made := map[string]int{}
		names := []string{"put", "drop", "get"}
		for _, n := range names {
			w.reply[n] = func(r tools.Request) (tools.Result, error) {
				if n != "get" {
					made[n+string(r.Args)]++
				}
				return text("ok"), nil
			}
		}
		var program []broker.Call
		for i := range rapid.IntRange(1, 6).Draw(rt, "length") {
			program = append(program,
				broker.Call{
					Server: "s", Tool: rapid.SampledFrom(names).Draw(rt, "tool"),
					Args: object(fmt.Sprintf(`{"location":"%d"}`, i)),
				})
		}
		doubt := false
		for run := 1; ; run++ {
			w.cfg.Task.Run = run
			e := w.open()
			dieAt := rapid.IntRange(0, 2*len(program)).Draw(rt, "die at") // 2n is before call n, 2n+1 during it
			ended := true
			for i, c := range program {
				if run < 6 && dieAt == 2*i {
					ended = false
					break
				}
				if run < 6 && dieAt == 2*i+1 {
					ctx, die := context.WithCancel(t.Context())
					inner := w.reply[c.Tool]
					w.reply[c.Tool] = func(r tools.Request) (tools.Result, error) {
						die()
						if rapid.Bool().Draw(rt, "carried out") {
							_, _ = inner(r)
						}
						return tools.Result{}, ctx.Err()
					}
					_, err := e.Call(ctx, c)
					w.reply[c.Tool] = inner
					if code(err) == errcode.InDoubt {
						doubt = true
					} else if err == nil {
						continue // the call was replayed
					}
					ended = false
					break
				}
				if _, err := e.Call(t.Context(), c); code(err) == errcode.InDoubt {
					doubt = true
				} else if err != nil {
					rt.Fatal(err)
				}
			}
			if err := e.Close(t.Context()); err != nil {
				rt.Fatal(err)
			}
			if ended {
				break
			}
		}
		for call, n := range made {
			if n > 1 {
				rt.Fatalf("%s was made %d times, want at most once", call, n)
			}
		}
		for _, c := range program {
			if !doubt && c.Tool != "get" && made[c.Tool+string(c.Args)] != 1 {
				rt.Fatalf("%s%s was made %d times, want once", c.Tool, c.Args, made[c.Tool+string(c.Args)])
			}
		}
	})
}

// A later run of a task may make different calls: fewer, more, in a different order, in threads. However they
// differ, together they change no more than the last run that changed something would alone, and the n-th equal call
// always has the same result.
func TestRunsThatDiffer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			made, results := map[string]int{}, map[string][]string{}
			w.reply["put"] = func(r tools.Request) (tools.Result, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				made[string(r.Args)]++
				return text(fmt.Sprint(string(r.Args), made[string(r.Args)])), nil
			}
			sum := func() (n int) {
				for _, k := range made {
					n += k
				}
				return n
			}
			for run := range rapid.IntRange(2, 5).Draw(rt, "runs") {
				w.cfg.Task.Run = run + 1
				e, before := w.open(), sum()
				program := rapid.SliceOfN(rapid.IntRange(0, 3), 0, 6).Draw(rt, "program")
				threads := rapid.Bool().Draw(rt, "threads")
				counts, got := map[string]int{}, map[string][]string{}
				var calls sync.WaitGroup
				for i, n := range program {
					args := fmt.Sprintf(`{"n":%d}`, n)
					counts[args]++
					call := func() {
						value, err := w.call(e, "put", args)
						if err != nil && code(err) != errcode.InDoubt {
							t.Errorf("put %s = %v, want nil or in_doubt", args, err)
						}
						w.mu.Lock()
						defer w.mu.Unlock()
						got[args] = append(got[args], value)
					}
					if !threads {
						call()
						continue
					}
					delay := time.Duration(rapid.IntRange(0, 400).Draw(rt, "delay")+i) * time.Millisecond
					calls.Go(func() {
						<-time.After(delay)
						call()
					})
				}
				calls.Wait()
				if err := e.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				for args, values := range got {
					slices.Sort(values) // calls in threads end in any order
					values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
					// Calls that begin at the same time are numbered in any order, so the values may swap.
					common := slices.DeleteFunc(slices.Clone(values), func(v string) bool {
						return !slices.Contains(results[args], v)
					})
					if len(common) != min(len(values), len(results[args])) {
						t.Errorf("run %d: put %s = %v, want the same values as before: %v",
							run+1, args, values, results[args])
					}
					if len(values) > len(results[args]) {
						results[args] = values
					}
				}
				for args, n := range made {
					if sum() > before && n > counts[args] {
						t.Errorf("put %s was made %d times by run %d, which calls %v, want no more than that",
							args, n, run+1, program)
					}
				}
			}
		})
		if t.Failed() {
			rt.Fatal("a check of the runs failed, want none")
		}
	})
}
