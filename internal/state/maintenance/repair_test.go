package maintenance_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

const damagedCommits = 12

func damagedContent(i int) string { return statetest.Random(byte(i), 2000) }

// damagedHistory makes 12 generations, each of which adds a file in a new pack. It returns the keys of packs and
// manifests by generation.
func damagedHistory(t *testing.T, bucket *mem.Objects) (packs, manifests map[int]string) {
	t.Helper()
	w := statetest.OpenWorker(t, bucket)
	packs, manifests = map[int]string{}, map[int]string{}
	for i := 1; i <= damagedCommits; i++ {
		w.Checkout()
		w.Write(fmt.Sprint("d/f", i), damagedContent(i))
		bucket.Calls()
		w.Commit(fmt.Sprint("task-", i))
		for _, call := range bucket.Calls() {
			switch call.Op + " " + statetest.KindOf(call.Key) {
			case "put p":
				packs[i] = call.Key
			case "put m":
				manifests[i] = call.Key
			}
		}
	}
	return packs, manifests
}

func truncated(data []byte) []byte { return data[:len(data)-10] }

// allBut returns the files of the history without the files of some generations.
func allBut(missing ...int) map[string]string {
	files := map[string]string{"d": "dir"}
	for i := 1; i <= damagedCommits; i++ {
		if !slices.Contains(missing, i) {
			files[fmt.Sprint("d/f", i)] = damagedContent(i)
		}
	}
	return files
}

// unnamed adds files with recovered content whose paths are lost.
func unnamed(files map[string]string, found ...int) map[string]string {
	out := maps.Clone(files)
	for _, i := range found {
		id := sha256.Sum256([]byte(damagedContent(i)))
		out["recovered"], out["recovered/"+hex.EncodeToString(id[:8])] = "dir", damagedContent(i)
	}
	return out
}

// TestRepair damages each kind of object in turn. Check must find the damage, Repair must restore everything that is
// left and report the rest, and the repaired workspace must work.
func TestRepair(t *testing.T) {
	const head, pins = "acme/w/main/HEAD", "acme/w/main/pins/HEAD"
	all := func(m map[int]string) []string { return slices.Collect(maps.Values(m)) }
	one := func(i int) func(map[int]string) []string {
		return func(m map[int]string) []string { return []string{m[i]} }
	}
	for _, c := range []struct {
		name     string
		pack     func(map[int]string) []string // damaged packs
		manifest func(map[int]string) []string
		key      string
		how      func([]byte) []byte
		deep     bool // the damage is found only by reading content
		lost     []string
		older    int64
		unknown  []int64 // lost generations
		want     map[string]string
		same     bool // nothing needs repair, so there is no new generation
	}{
		{name: "nothing", how: statetest.Gone, want: allBut(), same: true},
		{name: "pack gone", pack: one(5), how: statetest.Gone, lost: []string{"d/f5"}, want: allBut(5)},
		{name: "pack truncated", pack: one(5), how: truncated, want: allBut()},
		{name: "all packs truncated", pack: all, how: truncated, want: allBut()},
		{
			name: "pack with damaged content", pack: one(5), how: statetest.Flipped(100), deep: true,
			lost: []string{"d/f5"}, want: allBut(5),
		},
		{name: "pack with damaged index", pack: one(5), how: statetest.Flipped(-20), deep: true, want: allBut()},
		{
			name: "newest manifest gone", manifest: one(12), how: statetest.Gone, unknown: []int64{12},
			want: unnamed(allBut(12), 12),
		},
		{
			name: "newest manifest flipped", manifest: one(12), how: statetest.Flipped(30), unknown: []int64{12},
			want: unnamed(allBut(12), 12),
		},
		{
			name: "delta gone", manifest: one(10), how: statetest.Gone, unknown: []int64{10},
			want: unnamed(allBut(10), 10),
		},
		{
			name: "delta truncated", manifest: one(10), how: truncated, unknown: []int64{10},
			want: unnamed(allBut(10), 10),
		},
		{name: "delta that others repeat gone", manifest: one(6), how: statetest.Gone, want: allBut(), same: true},
		{
			name: "full manifest gone", manifest: one(1), how: statetest.Gone, unknown: []int64{1},
			want: unnamed(allBut(1), 1),
		},
		{
			name: "all manifests gone", manifest: all, how: statetest.Gone, unknown: []int64{12},
			want: unnamed(map[string]string{}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
		},
		{name: "HEAD gone", key: head, how: statetest.Gone, want: allBut()},
		{name: "HEAD flipped", key: head, how: statetest.Flipped(50), want: allBut()},
		{name: "HEAD empty", key: head, how: func([]byte) []byte { return []byte{} }, want: allBut()},
		{
			name: "HEAD and newest manifest gone", key: head, manifest: one(12), how: statetest.Gone,
			want: unnamed(allBut(12), 12),
		},
		{name: "pins flipped", key: pins, how: statetest.Flipped(5), want: allBut(), same: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket := mem.New()
				packs, manifests := damagedHistory(t, bucket)
				if err := history.Pin(t.Context(), state.New(bucket, state.Options{}).Repo(), ref, "four",
					4); err != nil {
					t.Fatal(err)
				}
				var damaged []string
				if c.pack != nil {
					damaged = append(damaged, c.pack(packs)...)
				}
				if c.manifest != nil {
					damaged = append(damaged, c.manifest(manifests)...)
				}
				if c.key != "" {
					damaged = append(damaged, c.key)
				}
				for _, key := range damaged {
					bucket.Damage(key, c.how)
				}
				wantFound(t, bucket, damaged, c.deep, c.lost)
				store := state.New(bucket, state.Options{})
				dry, err := maintenance.Repair(t.Context(), store.Repo(), ref,
					maintenance.RepairOptions{ReadData: c.deep, DryRun: true})
				if err != nil {
					t.Fatalf("Repair(dry run) = %v, want nil", err)
				}
				bucket.Calls()
				out, err := maintenance.Repair(t.Context(), store.Repo(), ref,
					maintenance.RepairOptions{ReadData: c.deep})
				if err != nil {
					t.Fatalf("Repair() = %v, want nil", err)
				}
				if diff := cmp.Diff(dry.Lost, out.Lost); diff != "" {
					t.Errorf("lost paths of a dry run and of a repair differ (-dry +done):\n%s", diff)
				}
				for _, call := range bucket.Calls() {
					if call.Op == "delete" {
						t.Errorf("Repair() sent the request %+v, want no deletion", call)
					}
				}
				var lost []string
				for _, l := range out.Lost {
					lost = append(lost, l.Path)
					if l.Older != c.older || l.Bytes != 2000 {
						t.Errorf("lost: %+v, want 2000 bytes, in generation %d", l, c.older)
					}
				}
				if !slices.Equal(lost, c.lost) || !slices.Equal(out.LostGenerations, c.unknown) ||
					out.Commit.NoChange != c.same {
					t.Errorf("Repair() = %+v, want lost %v, unknown %v, unchanged: %v", out, c.lost, c.unknown, c.same)
				}
				wantWorking(t, bucket, c.want, c.deep)
			})
		})
	}
}

// wantFound checks that Check finds the damage.
func wantFound(t *testing.T, bucket *mem.Objects, damaged []string, deep bool, lost []string) {
	t.Helper()
	report, err := maintenance.Check(t.Context(), state.New(bucket, state.Options{}).Repo(), ref,
		maintenance.CheckOptions{ReadData: deep})
	if err != nil {
		t.Fatalf("Check() = %v, want nil", err)
	}
	if (len(report.Problems) > 0) != (len(damaged) > 0) || !slices.Equal(report.Lost, lost) {
		t.Errorf("Check() = %+v, want problems with %v, lost %v", report, damaged, lost)
	}
	for _, key := range damaged[:min(len(damaged), 1)] {
		if len(damaged) == 1 && !strings.Contains(strings.Join(report.Problems, "\n"), key) {
			t.Errorf("Check() does not name %s: %q", key, report.Problems)
		}
	}
}

// wantWorking checks that a repaired workspace works: a second repair, the files, the history, a task, and garbage
// collection.
func wantWorking(t *testing.T, bucket *mem.Objects, want map[string]string, deep bool) {
	t.Helper()
	w := statetest.OpenWorker(t, bucket)
	w.Checkout()
	w.Want(want)
	again, err := maintenance.Repair(t.Context(), w.Store.Repo(), ref, maintenance.RepairOptions{ReadData: deep})
	if err != nil || !again.Commit.NoChange || len(again.Lost) > 0 {
		t.Errorf("second Repair() = %+v, %v, want no change", again, err)
	}
	log, err := history.Log(t.Context(), w.Store.Repo(), ref, 0)
	if err != nil || len(log) == 0 {
		t.Fatalf("Log() = %v, %v, want commits", log, err)
	}
	report, err := maintenance.Check(t.Context(), w.Store.Repo(), ref, maintenance.CheckOptions{ReadData: true})
	if err != nil || len(report.Lost) > 0 {
		t.Errorf("Check() of the repaired workspace = %+v, %v, want nothing lost", report, err)
	}
	w.Write("after", "repair")
	if c := w.Commit("after"); c.Generation < damagedCommits+1 {
		t.Errorf("Commit() after the repair = generation %d, want more than %d", c.Generation, damagedCommits)
	}
	for range 3 {
		statetest.Advance(t, 25*time.Hour)
		if _, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme",
			maintenance.GCOptions{}); err != nil {
			t.Errorf("CollectGarbage() after the repair = %v, want nil", err)
		}
	}
	fresh := statetest.OpenWorker(t, bucket)
	fresh.Checkout()
	want = maps.Clone(want)
	want["after"] = "repair"
	fresh.Want(want)
	if err := bucket.Violations(); err != nil {
		t.Error(err)
	}
}

// TestRepairKeepsHistory checks that after the loss of a delta, the readable versions stay in the history, committed
// tasks are still found, and no generation is used twice.
func TestRepairKeepsHistory(t *testing.T) {
	for _, how := range []func([]byte) []byte{statetest.Gone, statetest.Flipped(40)} {
		bucket := mem.New()
		_, manifests := damagedHistory(t, bucket)
		bucket.Damage(manifests[9], how)
		bucket.Damage("acme/w/main/HEAD", how)
		store := state.New(bucket, state.Options{})
		out, err := maintenance.Repair(t.Context(), store.Repo(), ref, maintenance.RepairOptions{})
		const repaired = 77 // above all generations that HEAD could have carried
		if err != nil || out.Commit.Generation != repaired {
			t.Fatalf("Repair() = %+v, %v, want generation %d", out, err, repaired)
		}
		log, err := history.Log(t.Context(), store.Repo(), ref, 0)
		var generations []int64
		for _, c := range log {
			generations = append(generations, c.Generation)
		}
		if want := []int64{repaired, 8, 7, 6, 5, 4, 3, 2, 1}; err != nil || !slices.Equal(generations, want) {
			t.Errorf("Log() = %v, %v, want generations %v", generations, err, want)
		}
		f, _, err := history.Open(t.Context(), store.Repo(), ref, 5, "d/f3")
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(f); err != nil || string(data) != damagedContent(3) {
			t.Errorf("d/f3 of generation 5 is %d bytes, %v, want its content", len(data), err)
		}
		if done, err := store.Applied(t.Context(), ref, "task-8", time.Time{}); err != nil || done == nil ||
			done.Generation != 8 {
			t.Errorf("Applied(task-8) = %+v, %v, want generation 8", done, err)
		}
	}
}

// TestRepairKeepsTasks checks that after the loss of a manifest, tasks before it are found that HEAD no longer lists.
func TestRepairKeepsTasks(t *testing.T) {
	for _, how := range []func([]byte) []byte{statetest.Gone, statetest.Flipped(40)} {
		synctest.Test(t, func(t *testing.T) {
			bucket := mem.New()
			_, manifests := damagedHistory(t, bucket)
			w := statetest.OpenWorker(t, bucket)
			statetest.Advance(t, time.Hour) // HEAD lists all tasks of the last minutes
			for i := range 70 {
				w.Checkout()
				w.Write("later", strconv.Itoa(i))
				w.Commit(fmt.Sprint("later-", i))
			}
			bucket.Damage(manifests[9], how)
			store := state.New(bucket, state.Options{})
			out, err := maintenance.Repair(t.Context(), store.Repo(), ref, maintenance.RepairOptions{})
			if err != nil || !out.Commit.NoChange {
				t.Fatalf("Repair() = %+v, %v, want no commit", out, err)
			}
			store = state.New(bucket, state.Options{})
			if done, err := store.Applied(t.Context(), ref, "task-8", time.Time{}); err != nil || done == nil ||
				done.Generation != 8 {
				t.Errorf("Applied(task-8) = %+v, %v, want generation 8", done, err)
			}
			if done, err := store.Fence(t.Context(), ref, "another", 1, time.Time{}); err != nil || done != nil {
				t.Errorf("Fence(another) = %+v, %v, want no commit", done, err)
			}
		})
	}
}

// TestRepairDuringCollection checks that a version that garbage collection removes during a repair is not reported.
func TestRepairDuringCollection(t *testing.T) {
	bucket := mem.New()
	w := statetest.Committed(t, bucket, 3)
	w.Checkout()
	for i := range 500 { // so many that the new version does not need the manifests before it
		w.Write(fmt.Sprint("f", i), "x")
	}
	w.Commit("task-4")
	removed := false
	racing := interposed{bucket, func(op, key string) {
		if op == "get" && statetest.KindOf(key) == "m" && !removed {
			removed = true // the first manifest that is read
			if err := bucket.Delete(t.Context(), key); err != nil {
				t.Error(err)
			}
		}
	}}
	out, err := maintenance.Repair(t.Context(), state.New(racing, state.Options{}).Repo(), ref,
		maintenance.RepairOptions{})
	if err != nil || !removed || !out.Commit.NoChange || len(out.Problems) > 0 {
		t.Errorf("Repair() = %+v, %v, removed %t, want no change and no problem", out, err, removed)
	}
}

// TestRepairReadsNoMoreThanItNeeds checks that a damaged pack is read only once if another pack has its content.
func TestRepairReadsNoMoreThanItNeeds(t *testing.T) {
	bucket := mem.New()
	commit := func(ref state.Ref, files ...string) (pack string) {
		w := statetest.NewWorker(t, bucket, ref, state.Options{})
		w.Checkout()
		for i, name := range files {
			w.Write(name, damagedContent(i))
		}
		w.Commit("task")
		for _, call := range bucket.Calls() {
			if call.Op == "put" && statetest.KindOf(call.Key) == "p" {
				pack = call.Key
			}
		}
		return pack
	}
	pack := commit(ref, "same")
	commit(state.Ref{Tenant: ref.Tenant, Workspace: "copy"}, "same", "another")
	bucket.Damage(pack, truncated)
	out, err := maintenance.Repair(t.Context(), state.New(bucket, state.Options{}).Repo(), ref,
		maintenance.RepairOptions{})
	if err != nil || len(out.Lost) > 0 || len(out.Problems) != 1 {
		t.Errorf("Repair() = %+v, %v, want one problem and no lost paths", out, err)
	}
	gets := 0
	for _, call := range bucket.Calls() {
		if call.Op == "get" && call.Key == pack {
			gets++
		}
	}
	if gets != 1 {
		t.Errorf("the damaged pack was read %d times, want 1", gets)
	}
}

// TestRepairFindsOlder checks that a lost path is reported with the newest generation in which it can be read.
func TestRepairFindsOlder(t *testing.T) {
	bucket := mem.New()
	statetest.Committed(t, bucket, 3)
	for _, key := range statetest.Keys(t, bucket) {
		bucket.Damage(key, func(data []byte) []byte {
			if strings.Contains(key, "/p/") && strings.HasPrefix(string(data), "3") {
				return nil
			}
			return data
		})
	}
	out, err := maintenance.Repair(t.Context(), state.New(bucket, state.Options{}).Repo(), ref,
		maintenance.RepairOptions{})
	if want := []maintenance.LostPath{{Path: "n", Bytes: 1, Older: 2}}; err != nil || cmp.Diff(want, out.Lost) != "" {
		t.Errorf("Repair() = %+v, %v, want lost %v", out, err, want)
	}
}

// TestRepairUnavailable checks that Repair fails if the object store becomes unavailable while it looks for an older
// version of a lost path.
func TestRepairUnavailable(t *testing.T) {
	bucket := mem.New()
	statetest.Committed(t, bucket, 3)
	for _, key := range statetest.Keys(t, bucket) {
		bucket.Damage(key, func(data []byte) []byte {
			if strings.Contains(key, "/p/") && strings.HasPrefix(string(data), "3") {
				return nil
			}
			return data
		})
	}
	var mu sync.Mutex
	gets := map[string]int{}
	bucket.SetFault(func(c mem.Call) mem.Fault {
		mu.Lock()
		defer mu.Unlock()
		gets[c.Key]++
		// The survey and the newest version need the first two reads.
		if c.Op == "get" && statetest.KindOf(c.Key) == "m" && gets[c.Key] > 2 {
			return mem.Broken
		}
		return mem.OK
	})
	out, err := maintenance.Repair(t.Context(), state.New(bucket, state.Options{}).Repo(), ref,
		maintenance.RepairOptions{DryRun: true})
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("Repair() = %+v, %v, want the error of the object store", out, err)
	}
}

// TestRepairWaitsForUploads checks that Repair ends its uploads of salvaged content also if it fails.
func TestRepairWaitsForUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		packs, manifests := damagedHistory(t, bucket)
		bucket.Damage(packs[3], truncated)
		bucket.Damage(manifests[damagedCommits], func([]byte) []byte { return nil })
		var uploads, active atomic.Int64
		bucket.SetFault(func(c mem.Call) mem.Fault {
			switch {
			case c.Op == "list" && c.Key == "acme/w/": // of all manifests, to recover content without a name
				return mem.Broken
			case c.Op == "put" && statetest.KindOf(c.Key) == "p":
				uploads.Add(1)
				active.Add(1)
				defer active.Add(-1)
				time.Sleep(time.Second) //nolint:forbidigo // virtual time, of synctest
			}
			return mem.OK
		})
		out, err := maintenance.Repair(t.Context(), state.New(bucket, state.Options{}).Repo(), ref,
			maintenance.RepairOptions{})
		if err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("Repair() = %+v, %v, want the error of the object store", out, err)
		}
		if uploads.Load() != 1 || active.Load() != 0 {
			t.Errorf("%d uploads began, and %d have not ended, want 1 and 0", uploads.Load(), active.Load())
		}
	})
}

// TestRepairOfNothing checks that Repair does not change a workspace that does not exist or was deleted.
func TestRepairOfNothing(t *testing.T) {
	bucket := mem.New()
	store := state.New(bucket, state.Options{})
	if out, err := maintenance.Repair(t.Context(), store.Repo(), ref, maintenance.RepairOptions{}); err != nil ||
		!out.Commit.NoChange || len(statetest.Keys(t, bucket)) > 0 {
		t.Errorf("Repair() of a missing workspace = %+v, %v, with objects %v, want no change",
			out, err, statetest.Keys(t, bucket))
	}
	w := statetest.Committed(t, bucket, 3)
	if err := history.Delete(t.Context(), w.Store.Repo(), ref); err != nil {
		t.Fatal(err)
	}
	if out, err := maintenance.Repair(t.Context(), store.Repo(), ref, maintenance.RepairOptions{}); err != nil ||
		!out.Commit.NoChange {
		t.Errorf("Repair() of a deleted workspace = %+v, %v, want no change", out, err)
	}
	fresh := statetest.OpenWorker(t, bucket)
	fresh.Checkout()
	fresh.Want(map[string]string{})
}

// TestRepairOfTombstone checks that after the loss of a deleted workspace's HEAD and manifests, no generation is used
// twice.
func TestRepairOfTombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.Committed(t, bucket, 70)
		statetest.Must(t, history.Delete(t.Context(), w.Store.Repo(), ref))
		for range 3 {
			statetest.Advance(t, 25*time.Hour)
			_, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme", maintenance.GCOptions{})
			statetest.Must(t, err)
		}
		bucket.Damage(ref.HeadKey(), statetest.Flipped(50))
		out, err := maintenance.Repair(t.Context(), state.New(bucket, state.Options{}).Repo(), ref,
			maintenance.RepairOptions{})
		if err != nil || out.Commit.Generation <= 71 {
			t.Errorf("Repair() = %+v, %v, want a generation above the tombstone's, which was 71", out, err)
		}
		fresh := statetest.OpenWorker(t, bucket)
		fresh.Checkout()
		fresh.Want(map[string]string{})
	})
}

// TestCollectWithDamage checks that garbage collection works with damaged marks and damaged retained objects, and keeps
// retained versions.
func TestCollectWithDamage(t *testing.T) {
	damaged := func([]byte) []byte { return []byte("{") }
	for name, how := range map[string]func([]byte) []byte{
		"marks": damaged,
		"k":     damaged,
		"k, with another manifest": func(data []byte) []byte {
			return bytes.ReplaceAll(data, []byte("000000000003-"), []byte("000000000007-"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket := mem.New()
				w := statetest.Committed(t, bucket, 30)
				if err := w.Store.Retain(t.Context(), ref, 3, time.Now().Add(30*24*time.Hour)); err != nil {
					t.Fatal(err)
				}
				removed := 0
				for range 4 {
					statetest.Advance(t, 25*time.Hour)
					for _, key := range statetest.Keys(t, bucket) {
						if name == "marks" && strings.Contains(key, "/gc/") && !strings.HasSuffix(key, "HEAD") ||
							name != "marks" && strings.Contains(key, "/k/") {
							bucket.Damage(key, how)
						}
					}
					out, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(),
						"acme", statetest.Strict)
					if err != nil {
						t.Fatal(err)
					}
					removed += out.Removed
				}
				if (removed > 0) != (name != "marks") {
					t.Errorf("garbage collection removed %d objects", removed)
				}
				r := state.New(bucket, state.Options{}).Repo()
				f, _, err := history.OpenRetained(t.Context(), r, ref, 3, "n")
				if err != nil {
					t.Fatalf("OpenRetained() = %v, want nil", err)
				}
				if data, err := io.ReadAll(f); err != nil || string(data) != "3" {
					t.Errorf("the retained file contains %q, %v, want 3", data, err)
				}
			})
		})
	}
}

// TestCheckNamesAll checks that damaged pins do not hide a damaged manifest.
func TestCheckNamesAll(t *testing.T) {
	bucket := mem.New()
	_, manifests := damagedHistory(t, bucket)
	r := state.New(bucket, state.Options{}).Repo()
	statetest.Must(t, history.Pin(t.Context(), r, ref, "pin", 5))
	for _, key := range []string{ref.PinsKey(), manifests[3]} {
		bucket.Damage(key, truncated)
	}
	out, err := maintenance.Check(t.Context(), state.New(bucket, state.Options{}).Repo(), ref,
		maintenance.CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{ref.PinsKey(), manifests[3]} {
		naming := 0
		for _, p := range out.Problems {
			naming += strings.Count(p, key)
		}
		if naming != 1 {
			t.Errorf("Check() names %s %d times, want once: %q", key, naming, out.Problems)
		}
	}
}
