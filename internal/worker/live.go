package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/dirsync"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/mutex"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/schemas"
)

// Live is a directory on this host that is kept in sync with a workspace. Its changes are imported before
// a task of the workspace runs on this worker. The workspace's changes are exported after each such task, and
// soon after any other commit.
type Live struct {
	Dir       string
	StatePath string // file that records both sides as of the last synchronisation
	Ref       state.Ref
}

const (
	liveInterval = 2 * time.Second // how often the worker looks for commits that it has not made
	maxLiveDelay = time.Minute     // between exports that fail
)

// liveFolder is an open live folder.
type liveFolder struct {
	ref   state.Ref
	store *state.Store
	log   *slog.Logger

	mu       *mutex.Mutex // held while the directory is read or written; protects the fields below
	folder   *dirsync.Folder
	exported int64         // the newest generation in the directory
	failed   int64         // generation whose export failed last; 0 if it could not be read
	delay    time.Duration // from that failure to retryAt; 0 after a success
	retryAt  time.Time
}

// openLive opens the directory, which it creates if it does not exist, and synchronises it with the workspace.
func openLive(ctx context.Context, o Live, store *state.Store, log *slog.Logger) (*liveFolder, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("live folder: %w", err)
	}
	options := dirsync.Options{BaseFile: o.StatePath, Workspace: o.Ref.String() + " " + o.Dir}
	if info, err := os.Stat(o.Dir); err == nil && os.Geteuid() == 0 {
		if sys, ok := info.Sys().(*syscall.Stat_t); ok { // exported files belong to the owner of the directory
			options.Owner = &dirsync.Owner{UID: int(sys.Uid), GID: int(sys.Gid)}
		}
	}
	f, err := dirsync.Open(o.Dir, remote{store, o.Ref}, options)
	if errors.Is(err, dirsync.ErrOtherWorkspace) { // the file records another workspace or directory
		if err = os.Remove(o.StatePath); err == nil {
			f, err = dirsync.Open(o.Dir, remote{store, o.Ref}, options)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("live folder %s: %w", o.Dir, err)
	}
	l := &liveFolder{ref: o.Ref, store: store, log: log, folder: f, mu: mutex.New()}
	if err := l.sync(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("live folder %s: %w", o.Dir, err), f.Close())
	}
	return l, nil
}

// withSync returns a handler that imports the directory before each task of the workspace and exports to it afterwards.
func (l *liveFolder) withSync(next jobs.Handler) jobs.Handler {
	return func(ctx context.Context, j *jobs.Job) (*schemas.Result, error) {
		if (state.Ref{Tenant: j.Record.Tenant, Workspace: j.Record.Workspace}) != l.ref {
			return next(ctx, j)
		}
		// exit is created before the task runs, so that it ends jobs.FinishTime after the end of a drain, even if the
		// task ends later than the drain.
		exit, stop := jobs.UntilExit(ctx)
		defer stop()
		if err := l.importChanges(ctx); err != nil {
			return importFailed(l.ref, err)
		}
		res, err := next(ctx, j)
		after, cancel := context.WithTimeout(exit, time.Minute)
		defer cancel()
		l.export(after)
		return res, err
	}
}

// importFailed returns the result or the error of a task that does not run, because the import of the folder failed. If
// only the user can correct the folder, the task ends blocked: it would run on files other than those that the user
// sees. After any other error it is retried.
func importFailed(ref state.Ref, err error) (*schemas.Result, error) {
	_, bad := errors.AsType[*state.EditError](err)
	foreign := errors.Is(err, dirsync.ErrOlder) || errors.Is(err, dirsync.ErrOtherWorkspace)
	bad = bad || foreign || errors.Is(err, state.ErrQuota) || errors.Is(err, fs.ErrPermission)
	if !bad {
		return nil, fmt.Errorf("import the live folder: %w", err)
	}
	hint := "correct or remove the named file, or list it in .workspaceignore"
	if foreign {
		hint = "bring the workspace's data back; or remove the named file, which records what the folder had, and " +
			"start `up --workspace` again: it removes nothing from the folder"
	}
	return &schemas.Result{
		Status: schemas.Blocked, Workspace: schemas.WorkspaceChange{Name: ref.Workspace},
		Error: &schemas.Error{
			Code:    errcode.FolderNotImported,
			Message: "the folder of `up --workspace` cannot be imported: " + err.Error(),
			Hint:    hint,
		},
	}, nil
}

// importChanges imports the directory's changes, if it has any.
func (l *liveFolder) importChanges(ctx context.Context) error {
	if err := l.mu.Lock(ctx); err != nil {
		return err
	}
	dirty, err := l.folder.Dirty()
	l.mu.Unlock()
	if err != nil || !dirty {
		return err
	}
	return l.sync(ctx)
}

func (l *liveFolder) sync(ctx context.Context) error {
	if err := l.mu.Lock(ctx); err != nil {
		return err
	}
	defer l.mu.Unlock()
	r, err := l.folder.Sync(ctx, "live folder")
	l.report(ctx, r, err)
	return err
}

// export exports the workspace's changes to the directory. After failures in a row it exports the same generation at
// growing intervals.
func (l *liveFolder) export(ctx context.Context) {
	if l.mu.Lock(ctx) != nil {
		return
	}
	defer l.mu.Unlock()
	info, err := history.ReadInfo(ctx, l.store.Repo(), l.ref)
	isRetry := l.delay > 0 && info.Generation == l.failed
	if isRetry && time.Now().Before(l.retryAt) {
		return
	}
	if err == nil && info.Generation != l.exported {
		var r dirsync.Report
		r, err = l.folder.Pull(ctx, dirsync.KeepBoth)
		l.report(ctx, r, err)
	}
	switch {
	case err == nil:
		l.delay = 0
	case ctx.Err() == nil:
		if !isRetry {
			l.failed, l.delay = info.Generation, liveInterval/2
		}
		l.delay = min(2*l.delay, maxLiveDelay)
		l.retryAt = time.Now().Add(l.delay)
		l.log.WarnContext(ctx, "export to the live folder failed", "workspace", l.ref.String(), "error", err)
	}
}

// report logs conflicts. It records the exported generation unless there was an error: then another export follows.
func (l *liveFolder) report(ctx context.Context, r dirsync.Report, err error) {
	if err == nil {
		l.exported = max(l.exported, r.Generation)
	}
	if len(r.Conflicts) > 0 {
		l.log.WarnContext(ctx, "live folder and workspace conflict, both versions are kept",
			"workspace", l.ref.String(), "paths", r.Conflicts)
	}
}

// remote adapts a workspace to dirsync.
type remote struct {
	store *state.Store
	ref   state.Ref
}

func (r remote) Newest(ctx context.Context) (dirsync.Version, error) {
	info, err := history.ReadInfo(ctx, r.store.Repo(), r.ref)
	return dirsync.Version{Generation: info.Generation, Commit: info.Commit}, err
}

func (r remote) Log(ctx context.Context, limit int) ([]dirsync.Version, error) {
	commits, err := history.Log(ctx, r.store.Repo(), r.ref, limit)
	versions := make([]dirsync.Version, len(commits))
	for i, c := range commits {
		versions[i] = dirsync.Version{Generation: c.Generation, Commit: c.ID}
	}
	return versions, err
}

func (r remote) Files(ctx context.Context, generation int64) ([]dirsync.FileInfo, error) {
	if generation == 0 {
		return nil, nil
	}
	list, err := r.store.List(ctx, r.ref, generation, "")
	if errors.Is(err, state.ErrNotFound) {
		if info, infoErr := history.ReadInfo(ctx, r.store.Repo(), r.ref); infoErr == nil &&
			info.Generation == generation && info.Files == 0 { // the workspace was deleted
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	out := make([]dirsync.FileInfo, len(list))
	for i, f := range list {
		out[i] = dirsync.FileInfo{
			Path: f.Path, Kind: f.Kind, Mode: f.Mode, Bytes: f.Bytes, Time: f.Time, Target: f.Target, ETag: f.ETag,
		}
		for _, p := range f.Parts {
			out[i].Parts = append(out[i].Parts, dirsync.Part{SHA256: p.SHA256.String(), Bytes: p.Bytes})
		}
	}
	return out, nil
}

func (r remote) Read(ctx context.Context, generation int64, paths []string, fn func(string, io.Reader) error) error {
	wanted := make(map[string]bool, len(paths))
	for _, p := range paths {
		wanted[p] = true
	}
	want := func(f state.FileInfo) bool { return f.Kind == state.File && wanted[f.Path] }
	return history.Read(ctx, r.store.Repo(), r.ref, generation, want,
		func(f state.FileInfo, content io.Reader) error { return fn(f.Path, content) })
}

func (r remote) Write(
	ctx context.Context, base int64, message string, edits []dirsync.Edit,
) (dirsync.Version, error) {
	c, err := r.store.Edit(ctx, r.ref, state.EditOptions{Base: base, Message: message}, stateEdits(edits))
	if e, ok := errors.AsType[*state.ConflictError](err); ok {
		return dirsync.Version{}, &dirsync.ConflictError{Paths: e.Paths}
	}
	return dirsync.Version{Generation: c.Generation, Commit: c.ID}, err
}

// stateEdits converts edits. It opens the content of one file at a time.
func stateEdits(edits []dirsync.Edit) iter.Seq2[state.Edit, error] {
	return func(yield func(state.Edit, error) bool) {
		for _, e := range edits {
			out := state.Edit{Path: e.Path, Kind: e.Kind, Mode: fs.FileMode(e.Mode), Time: e.Time, Target: e.Target}
			if e.Remove {
				out = state.Edit{Path: e.Path}
			}
			if e.Remove || e.Kind != dirsync.File {
				if !yield(out, nil) {
					return
				}
				continue
			}
			content, err := e.Open()
			if err != nil {
				yield(out, err)
				return
			}
			out.Content = content
			more := yield(out, nil)
			content.Close()
			if !more {
				return
			}
		}
	}
}
