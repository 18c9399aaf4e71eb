package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/dirsync"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/schemas"
)

// hangingStore is an object store that does not respond while hangs is set.
type hangingStore struct {
	objects.Objects
	hangs *atomic.Bool
}

func (s hangingStore) Get(ctx context.Context, key string, o objects.GetOptions) (objects.Object, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return objects.Object{}, ctx.Err()
	}
	return s.Objects.Get(ctx, key, o)
}

// A run that ends because its worker drains returns in time to requeue the task, although the object store does not
// respond to the export, and although another export of the folder is in progress.
func TestLiveFolderDuringDrain(t *testing.T) {
	for name, exporting := range map[string]bool{"idle": false, "exporting": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket := hangingStore{mem.New(), &atomic.Bool{}}
				store := state.New(bucket, state.Options{})
				ref := state.Ref{Tenant: "acme", Workspace: "main"}
				l, err := openLive(t.Context(), Live{
					Dir: t.TempDir(), StatePath: filepath.Join(t.TempDir(), "base"), Ref: ref,
				}, store, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				defer l.folder.Close()
				bucket.hangs.Store(true)
				following, stop := context.WithCancel(t.Context())
				defer stop()
				if exporting {
					go l.export(following)
					synctest.Wait()
				}
				work, drain := context.WithCancelCause(t.Context())
				handle := l.withSync(func(ctx context.Context, _ *jobs.Job) (*schemas.Result, error) {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				})
				time.AfterFunc(time.Second, func() { drain(jobs.ErrDraining) })
				began := time.Now()
				rec := schemas.Record{Tenant: ref.Tenant, Workspace: ref.Workspace}
				if _, err := handle(work, &jobs.Job{Record: rec}); err == nil {
					t.Error("the run returned no error, want one")
				}
				if took := time.Since(began); took > time.Second+jobs.FinishTime {
					t.Errorf("the run returned %s after the end of the drain, want at most %s",
						took-time.Second, jobs.FinishTime)
				}
			})
		})
	}
}

// A task that is cancelled while it commits is exported, however long the commit takes.
func TestLiveFolderAfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := state.New(mem.New(), state.Options{})
		ref := state.Ref{Tenant: "acme", Workspace: "main"}
		dir := t.TempDir()
		l, err := openLive(t.Context(), Live{
			Dir: dir, StatePath: filepath.Join(t.TempDir(), "base"), Ref: ref,
		}, store, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer l.folder.Close()
		work, cancel := context.WithCancelCause(t.Context())
		handle := l.withSync(func(context.Context, *jobs.Job) (*schemas.Result, error) {
			cancel(jobs.ErrCancelled)
			<-time.After(2 * jobs.FinishTime)
			fill(t, store, ref.Workspace, 1)
			return &schemas.Result{Status: schemas.Succeeded}, nil
		})
		rec := schemas.Record{Tenant: ref.Tenant, Workspace: ref.Workspace}
		if _, err := handle(work, &jobs.Job{Record: rec}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
			t.Errorf("the committed file in the live folder: %v, want it exported", err)
		}
	})
}

// beforePut calls fn once, before the first object is put after fn was set.
type beforePut struct {
	objects.Objects
	fn func()
}

func (b *beforePut) Put(ctx context.Context, key string, data []byte, sum objects.Digest) error {
	if fn := b.fn; fn != nil {
		b.fn = nil
		fn()
	}
	return b.Objects.Put(ctx, key, data, sum)
}

// A change of a state document in the folder and a task's commit of another key, made during the upload, are merged,
// and the folder gets the merged document.
func TestLiveFolderMerges(t *testing.T) {
	bucket := &beforePut{Objects: mem.New()}
	store := state.New(bucket, state.Options{})
	ref := state.Ref{Tenant: "acme", Workspace: "main"}
	dir := t.TempDir()
	file := filepath.Join(dir, "state.json")
	write := func(data string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"a":1,"b":1}`)
	l, err := openLive(t.Context(), Live{Dir: dir, StatePath: filepath.Join(t.TempDir(), "base"), Ref: ref}, store,
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.folder.Close()
	write(`{"a":2,"b":1}`)
	bucket.fn = func() {
		edit := func(yield func(state.Edit, error) bool) {
			yield(state.Edit{Path: "state.json", Kind: state.File, Content: strings.NewReader(`{"a":1,"b":2}`)}, nil)
		}
		if _, err := store.Edit(t.Context(), ref, state.EditOptions{Base: state.Newest}, edit); err != nil {
			t.Error(err)
		}
	}
	if err := l.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	here, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, _, err := history.Open(t.Context(), store.Repo(), ref, 0, "state.json")
	if err != nil {
		t.Fatal(err)
	}
	there, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]int
	if err := json.Unmarshal(here, &keys); err != nil || keys["a"] != 2 || keys["b"] != 2 || !bytes.Equal(here, there) {
		t.Errorf("the folder has %s, the workspace %s, %v, want both changes in both", here, there, err)
	}
}

// An export that fails is repeated at growing intervals, although the workspace has not changed since. A new version is
// exported at once.
func TestLiveFolderAfterFailedExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		ref := state.Ref{Tenant: "acme", Workspace: "main"}
		dir := t.TempDir()
		l, err := openLive(t.Context(), Live{Dir: dir, StatePath: filepath.Join(t.TempDir(), "base"), Ref: ref},
			state.New(bucket, state.Options{}), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer l.folder.Close()
		content := strings.Repeat("large", 1<<20) // in a pack, not in a manifest
		other := state.New(bucket, state.Options{})
		commit := func(file string) {
			edit := func(yield func(state.Edit, error) bool) {
				yield(state.Edit{Path: file, Kind: state.File, Content: strings.NewReader(content)}, nil)
			}
			if _, err := other.Edit(t.Context(), ref, state.EditOptions{Base: state.Newest}, edit); err != nil {
				t.Fatal(err)
			}
		}
		commit("a")
		failures := 0
		bucket.SetFault(func(c mem.Call) mem.Fault {
			if c.Op != "get" || !strings.Contains(c.Key, "/p/") {
				return mem.OK
			}
			failures++
			return mem.Broken
		})
		began := time.Now()
		var at []time.Duration // of the exports that failed
		export := func() {
			before := failures
			now := time.Since(began)
			if l.export(t.Context()); failures > before {
				at = append(at, now.Truncate(liveInterval))
			}
		}
		for export(); time.Since(began) < 4*time.Minute; export() {
			_ = clock.Sleep(t.Context(), liveInterval)
		}
		commit("b")
		export()
		want := []time.Duration{0, 2, 6, 14, 30, 62, 122, 182, 240}
		for i := range want {
			want[i] *= time.Second
		}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("times of exports that failed (-want +got):\n%s", diff)
		}
		bucket.SetFault(nil)
		_ = clock.Sleep(t.Context(), liveInterval)
		l.export(t.Context())
		for _, file := range []string{"a", "b"} {
			if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != content {
				t.Errorf("%s has %d bytes, %v, want all %d after the next export", file, len(got), err, len(content))
			}
		}
	})
}

// A deleted workspace empties the folder, and one that lost its data leaves it as it is.
func TestLiveFolderOfLostWorkspace(t *testing.T) {
	ref := state.Ref{Tenant: "acme", Workspace: "main"}
	live := Live{Dir: t.TempDir(), StatePath: filepath.Join(t.TempDir(), "base"), Ref: ref}
	file := filepath.Join(live.Dir, "a")
	if err := os.WriteFile(file, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(store *state.Store) error {
		l, err := openLive(t.Context(), live, store, slog.New(slog.DiscardHandler))
		if err == nil {
			err = l.folder.Close()
		}
		return err
	}
	store := state.New(mem.New(), state.Options{})
	if err := open(store); err != nil {
		t.Fatal(err)
	}
	if err := open(state.New(mem.New(), state.Options{})); !errors.Is(err, dirsync.ErrOlder) {
		t.Errorf("openLive() with a new bucket = %v, want %v", err, dirsync.ErrOlder)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file of a lost workspace: %v, want it kept", err)
	}
	other := state.New(mem.New(), state.Options{})
	edit := func(yield func(state.Edit, error) bool) {
		yield(state.Edit{Path: "b", Kind: state.File, Content: strings.NewReader("2")}, nil)
	}
	if _, err := other.Edit(t.Context(), ref, state.EditOptions{Base: state.Newest}, edit); err != nil {
		t.Fatal(err)
	}
	if err := open(other); !errors.Is(err, dirsync.ErrOtherWorkspace) {
		t.Errorf("openLive() with another bucket = %v, want %v", err, dirsync.ErrOtherWorkspace)
	}
	for _, lost := range []error{dirsync.ErrOlder, dirsync.ErrOtherWorkspace} {
		res, err := importFailed(ref, lost)
		if err != nil || res.Status != schemas.Blocked ||
			!strings.Contains(res.Error.Hint, "bring the workspace's data back") {
			t.Errorf("importFailed(%v) = %+v, %v, want a hint to restore the workspace", lost, res, err)
		}
	}
	if err := history.Delete(t.Context(), store.Repo(), ref); err != nil {
		t.Fatal(err)
	}
	if err := open(store); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a deleted workspace: %v, want %v", err, os.ErrNotExist)
	}
	if err := os.WriteFile(file, []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(store); err != nil {
		t.Fatal(err)
	}
	if info, err := history.ReadInfo(t.Context(), store.Repo(), ref); err != nil || info.Generation != 3 ||
		info.Files != 1 {
		t.Errorf("workspace after another change of the folder = %+v, %v, want generation 3 with a file", info, err)
	}
}
