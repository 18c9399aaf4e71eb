package worker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
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
