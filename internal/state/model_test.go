package state_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/mirror"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestModelMirror updates the mirror in random interleavings with commits and garbage collection. Updates fail at
// random requests. After an update that succeeds, the mirror must have the files of the newest version.
func TestModelMirror(t *testing.T) {
	updates := 0
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		bubble(t, func() {
			m := newModel(rt, dir)
			target := mem.New()
			defer func() {
				if err := target.Violations(); err != nil {
					rt.Error(err)
				}
			}()
			update := func(rt *rapid.T) {
				store := mirror.Follow(state.New(m.bucket, state.Options{}).Repo(), target, mirror.Options{})
				var broken atomic.Bool
				if n := rapid.IntRange(0, 10).Draw(rt, "break"); n > 0 {
					var calls atomic.Int64
					target.SetFault(func(mem.Call) mem.Fault {
						if calls.Add(1) >= int64(n) {
							broken.Store(true)
							return mem.Broken
						}
						return mem.OK
					})
				}
				err := mirrorOnce(store)
				target.SetFault(nil)
				if err != nil && !broken.Load() {
					rt.Fatalf("Update() without faults = %v, want nil", err)
				}
				if err != nil {
					return
				}
				updates++
				if diff := cmp.Diff(m.files, statetest.MirroredFiles(rt, target)); diff != "" {
					rt.Fatalf("the mirror (-want +got):\n%s", diff)
				}
			}
			m.run(rt, map[string]func(*rapid.T){
				"mirror": update, "mirror again": update, // so updates are drawn twice as often as other actions
				"collect": m.collect, "delete": m.delete,
			})
		})
	})
	if updates == 0 {
		t.Error("no update succeeded, want some")
	}
}

// mirrorOnce updates the mirror with a context of the bubble in which it is called.
func mirrorOnce(store *mirror.Mirror) error {
	_, err := store.Update(context.Background(), ref)
	return err
}

// TestModel runs tasks on several workers in random interleavings, with lost responses, merges, compaction, and crashes
// at random requests, and compares the workspace with a map. At any time, a new worker must read exactly what was
// committed, and no task may be applied twice.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { newModel(rt, t.TempDir()).run(rt, nil) })
}

// TestModelEncrypted is TestModelCollect with encryption, whose key changes from time to time.
func TestModelEncrypted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		bubble(t, func() {
			m := newModel(rt, dir)
			m.run(rt, map[string]func(*rapid.T){"collect": m.collect, "delete": m.delete, "rotate": m.rotate})
		})
	})
}

// rotate gives all workers a new key, or turns encryption off. They keep the old keys.
func (m *model) rotate(rt *rapid.T) {
	n := len(m.secrets.Old)
	m.secrets.Old = append(slices.Clone(m.secrets.Old), []byte(fmt.Sprint("secret ", n)))
	m.secrets.Current = nil
	if rapid.IntRange(0, 3).Draw(rt, "off") > 0 {
		m.secrets.Current = []byte(fmt.Sprint("secret ", n+1))
	}
	for _, w := range m.workers {
		m.start(rt, w)
	}
}

// TestModelCollect is TestModel with deletions, pauses, and runs of garbage collection that keep as little as possible,
// some of which crash.
func TestModelCollect(t *testing.T) {
	removed, purges, compacted := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		bubble(t, func() {
			m := newModel(rt, dir)
			m.run(rt, map[string]func(*rapid.T){
				"delete":  m.delete,
				"collect": m.collect,
			})
			removed += m.removed
			purges += m.purges
			compacted += m.compacted
		})
	})
	if removed == 0 || compacted == 0 {
		t.Errorf("garbage collection removed %d objects and compacted %d packs, want some of each", removed, compacted)
	}
	t.Logf("%d objects removed, %d packs compacted, %d workspaces purged", removed, compacted, purges)
}

// bubble calls f in a synctest bubble, and passes on its panic, which is how rapid fails a check.
func bubble(t *testing.T, f func()) {
	t.Helper()
	var failed any
	synctest.Test(t, func(*testing.T) {
		defer func() { failed = recover() }()
		f()
	})
	switch {
	case failed == nil:
	case fmt.Sprintf("%T", failed) == "rapid.invalidData": // the shrinker has drawn too much
		panic(failed) // not on the line of other failures: the shrinker compares stack traces
	default:
		panic(failed)
	}
}

func (m *model) run(rt *rapid.T, more map[string]func(*rapid.T)) {
	defer m.close()
	actions := map[string]func(*rapid.T){
		"checkout": m.checkout,
		"edit":     m.edit,
		"commit":   m.commit,
		"revert":   m.revert,
		"restart":  m.restart,
		"task":     m.task,
		"fold":     m.fold,
		"":         m.check,
	}
	maps.Copy(actions, more)
	rt.Repeat(actions)
	if err := m.bucket.Violations(); err != nil {
		rt.Error(err)
	}
}

func (m *model) delete(rt *rapid.T) {
	if err := history.Delete(context.Background(), m.worker(rt).store.Repo(), ref); err != nil {
		rt.Fatal(err)
	}
	if m.commits > m.deleted { // otherwise there is nothing to delete
		m.commits++
		m.deleted = m.commits
		m.files = map[string]string{}
	}
}

// collect runs garbage collection several times, hours apart. Each run may crash.
func (m *model) collect(rt *rapid.T) {
	times := rapid.SampledFrom([]int{1, 2, 9}).Draw(rt, "times") // 9 are enough for both phases
	for range times {
		m.wait(rt, time.Duration(rapid.IntRange(5, 10).Draw(rt, "hours"))*time.Hour)
		w := m.worker(rt)
		if rapid.IntRange(0, 3).Draw(rt, "crash") == 3 {
			w.calls.left = rapid.IntRange(1, 12).Draw(rt, "after")
		}
		out, err := maintenance.CollectGarbage(context.Background(), w.store.Repo(), ref.Tenant, statetest.Forgetful)
		w.calls.left = -1
		m.removed += out.Removed
		m.purges += len(out.Purged)
		if err != nil && !errors.Is(err, errCrash) {
			rt.Fatal(err)
		}
		if err != nil { // a HEAD that it may have been purging must not be replaced for ten minutes
			m.wait(rt, 15*time.Minute)
		}
		m.compacted += out.Compacted
		m.follow(rt)
	}
}

// follow counts the commit that garbage collection may have made, which must not change any file.
func (m *model) follow(rt *rapid.T) {
	log, err := history.Log(context.Background(),
		state.New(m.bucket, state.Options{Secrets: func(string) state.Secrets { return m.secrets }}).Repo(), ref, 1)
	if err != nil {
		rt.Fatal(err)
	}
	if len(log) == 0 || log[0].Generation == m.commits {
		return
	}
	if log[0].Generation != m.commits+1 || len(log[0].Changed) > 0 {
		rt.Fatalf("garbage collection committed %+v, want no changes at generation %d", log[0], m.commits+1)
	}
	m.commits++
}

// wait lets time pass, and stops tasks that take too long.
func (m *model) wait(rt *rapid.T, d time.Duration) {
	const longest = 11 * time.Hour // a little less than half of the grace time
	timer := time.NewTimer(d)
	<-timer.C
	for _, w := range m.workers {
		if w.base != nil && time.Since(w.since) > longest {
			m.start(rt, w)
		}
	}
}

type model struct {
	dir       string
	bucket    *mem.Objects
	secrets   state.Secrets
	workers   []*modelWorker
	files     map[string]string // files of the newest version
	applied   map[string]bool   // ids of tasks that have committed
	commits   int64             // newest generation
	deleted   int64             // generation of the last tombstone
	removed   int               // objects that garbage collection removed
	compacted int               // packs that garbage collection compacted
	purges    int               // workspaces that garbage collection purged
	only      *modelWorker      // worker that makes the next steps; nil lets rapid choose
	tasks     int
}

type modelWorker struct {
	store   *state.Store
	tree    *state.Tree
	dir     string
	calls   *crashing
	base    map[string]string // files that were checked out; nil if nothing is checked out
	files   map[string]string // files after the program's changes
	on      int64             // generation that was checked out
	since   time.Time         // when it was checked out
	task    string
	attempt int
}

var modelPaths = []string{"a", "b", "d/x", "d/y", "e/f/z"}

func newModel(rt *rapid.T, dir string) *model {
	m := &model{dir: dir, bucket: mem.New(), files: map[string]string{}, applied: map[string]bool{}}
	for i := range 3 {
		w := &modelWorker{dir: filepath.Join(dir, fmt.Sprint(len(dir), i, rapid.Uint64().Draw(rt, "dir")))}
		if err := os.MkdirAll(w.dir, 0o755); err != nil {
			rt.Fatal(err)
		}
		m.start(rt, w)
		m.workers = append(m.workers, w)
	}
	return m
}

func (m *model) close() {
	for _, w := range m.workers {
		w.tree.Close()
		os.RemoveAll(w.dir)
	}
}

// start starts the worker's process again, on the same directory.
func (m *model) start(rt *rapid.T, w *modelWorker) {
	if w.tree != nil {
		w.tree.Close()
	}
	w.calls = &crashing{Objects: m.bucket, left: -1}
	secrets, carry := m.secrets, rapid.Bool().Draw(rt, "carry")
	w.store = state.New(w.calls, state.Options{
		Compaction: rapid.SampledFrom([]state.Compaction{statetest.Eager, {}}).Draw(rt, "compaction"),
		Carry:      func() bool { return carry },
		Secrets:    func(string) state.Secrets { return secrets },
	})
	var err error
	if w.tree, err = w.store.Tree(w.dir, ref); err != nil {
		rt.Fatal(err)
	}
	w.base, w.files = nil, nil
}

// task runs a complete task, whatever the worker did before.
func (m *model) task(rt *rapid.T) {
	m.only = m.worker(rt)
	defer func() { m.only = nil }()
	m.checkout(rt)
	for range rapid.IntRange(1, 3).Draw(rt, "edits") {
		m.edit(rt)
	}
	m.commit(rt)
}

func (m *model) worker(rt *rapid.T) *modelWorker {
	if m.only != nil {
		return m.only
	}
	return m.workers[rapid.IntRange(0, len(m.workers)-1).Draw(rt, "worker")]
}

// busy returns a worker that has checked out a version.
func (m *model) busy(rt *rapid.T) *modelWorker {
	w := m.worker(rt)
	if w.base == nil {
		rt.Skip("nothing checked out")
	}
	return w
}

func (m *model) checkout(rt *rapid.T) {
	w := m.worker(rt)
	if w.task == "" || m.applied[w.task] {
		m.tasks++
		w.task, w.attempt = fmt.Sprintf("task-%d", m.tasks), 0
	}
	w.attempt++
	v, err := w.store.Checkout(context.Background(), w.tree, nil)
	if err != nil {
		rt.Fatal(err)
	}
	if v.Generation != m.commits && !m.purged(v) {
		rt.Fatalf("Checkout() = generation %d, want %d", v.Generation, m.commits)
	}
	w.base, w.files, w.on, w.since = maps.Clone(m.files), maps.Clone(m.files), m.commits, time.Now()
	if diff := cmp.Diff(w.files, readFiles(rt, w.dir)); diff != "" {
		rt.Fatalf("after Checkout (-want +got):\n%s", diff)
	}
}

func (m *model) edit(rt *rapid.T) {
	w := m.busy(rt)
	path := rapid.SampledFrom(modelPaths).Draw(rt, "path")
	full := filepath.Join(w.dir, path)
	if rapid.Bool().Draw(rt, "remove") {
		os.Remove(full)
		delete(w.files, path)
		return
	}
	content := strconv.Itoa(rapid.IntRange(0, 3).Draw(rt, "content"))
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		rt.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		rt.Fatal(err)
	}
	w.files[path] = content
}

// fold folds HEAD. It may crash.
func (m *model) fold(rt *rapid.T) {
	w := m.worker(rt)
	if rapid.IntRange(0, 2).Draw(rt, "crash") == 2 {
		w.calls.left = rapid.IntRange(1, 6).Draw(rt, "after")
		w.calls.lost = rapid.Bool().Draw(rt, "lost")
	}
	err := w.store.Repo().Fold(context.Background(), ref)
	w.calls.left = -1
	if err != nil && !errors.Is(err, errCrash) {
		rt.Fatal(err)
	}
}

// merged returns the files that a worker's commit should lead to, or the conflicting paths.
func (m *model) merged(w *modelWorker) (map[string]string, []string) {
	out := maps.Clone(m.files)
	var conflicts []string
	for _, path := range modelPaths {
		base, theirs, ours := lookup(w.base, path), lookup(m.files, path), lookup(w.files, path)
		switch {
		case ours == base:
		case theirs != base:
			conflicts = append(conflicts, path)
		case ours == "":
			delete(out, path)
		default:
			out[path] = w.files[path]
		}
	}
	return out, conflicts
}

func lookup(files map[string]string, path string) string {
	if content, ok := files[path]; ok {
		return "=" + content
	}
	return ""
}

func (m *model) commit(rt *rapid.T) {
	w := m.busy(rt)
	w.calls.left = -1
	if rapid.Bool().Draw(rt, "crash") {
		w.calls.left = rapid.IntRange(1, 8).Draw(rt, "after")
		w.calls.lost = rapid.Bool().Draw(rt, "lost")
	}
	if n := rapid.IntRange(0, 6).Draw(rt, "fault"); n > 0 && w.calls.left < 0 {
		m.bucket.SetFault(statetest.OnNth(n, "swap", "HEAD", mem.LostResponse))
		defer m.bucket.SetFault(nil)
	}
	want, conflicts := m.merged(w)
	defer func() { w.calls.left = -1 }()
	c, err := w.store.Commit(context.Background(), w.tree,
		state.CommitOptions{TaskID: w.task, Attempt: w.attempt, Result: json.RawMessage(`1`), Since: time.Unix(1, 0)})
	switch {
	case errors.Is(err, errCrash):
		m.crashed(rt, w, want)
		return
	case w.on < m.deleted && !maps.Equal(w.files, w.base):
		if !errors.Is(err, state.ErrDeleted) {
			rt.Fatalf("Commit() after a deletion = %+v, %v, want %v", c, err, state.ErrDeleted)
		}
	case len(conflicts) > 0:
		var conflict *state.ConflictError
		if !errors.As(err, &conflict) || !slices.Equal(conflict.Paths, conflicts) {
			rt.Fatalf("Commit() = %+v, %v, want conflicts %v", c, err, conflicts)
		}
	case err != nil:
		rt.Fatal(err)
	case c.Already:
		rt.Fatalf("Commit() of %s = already applied, want a commit", w.task)
	case !c.NoChange:
		m.recordCommit(w, want)
		if c.Generation != m.commits {
			rt.Fatalf("Commit() = generation %d, want %d", c.Generation, m.commits)
		}
	}
	w.base = nil
}

func (m *model) recordCommit(w *modelWorker, files map[string]string) {
	m.files = files
	m.commits++
	m.applied[w.task] = true
}

// crashed starts a worker again after a crash, and finds out whether its task has committed.
func (m *model) crashed(rt *rapid.T, w *modelWorker, want map[string]string) {
	m.start(rt, w)
	done, err := w.store.Applied(context.Background(), ref, w.task, time.Unix(1, 0))
	if err != nil {
		rt.Fatal(err)
	}
	if done != nil {
		m.recordCommit(w, want)
	}
}

func (m *model) revert(rt *rapid.T) {
	w := m.busy(rt)
	if err := w.store.Revert(context.Background(), w.tree); err != nil {
		rt.Fatal(err)
	}
	w.files = maps.Clone(w.base)
	if diff := cmp.Diff(w.files, readFiles(rt, w.dir)); diff != "" {
		rt.Fatalf("after Revert (-want +got):\n%s", diff)
	}
	w.base = nil
}

func (m *model) restart(rt *rapid.T) { m.start(rt, m.worker(rt)) }

// purged reports whether v is the empty version of a workspace that was purged.
func (m *model) purged(v state.Version) bool { return v.Generation == 0 && m.commits == m.deleted }

// check reads the workspace as a new worker would.
func (m *model) check(rt *rapid.T) {
	w := &modelWorker{dir: filepath.Join(m.dir, "fresh")}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		rt.Fatal(err)
	}
	defer os.RemoveAll(w.dir)
	m.start(rt, w)
	defer w.tree.Close()
	v, err := w.store.Checkout(context.Background(), w.tree, nil)
	if err != nil || v.Generation != m.commits && !m.purged(v) {
		rt.Fatalf("Checkout() = %+v, %v, want generation %d", v, err, m.commits)
	}
	if diff := cmp.Diff(m.files, readFiles(rt, w.dir)); diff != "" {
		rt.Fatalf("a new worker reads (-want +got):\n%s", diff)
	}
}

func readFiles(rt *rapid.T, dir string) map[string]string {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		rt.Fatal(err)
	}
	return files
}
