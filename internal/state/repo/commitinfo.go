package repo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// MaxResult is the limit of a task's result in bytes.
const MaxResult = 64 << 20

// CommitOptions describes the task that commits.
type CommitOptions struct {
	TaskID  string          // at most 56 bytes; the same for every run. Empty if no task commits
	Attempt int             // number of the run, from 1
	Result  json.RawMessage // stored with the commit, and returned to later runs
	Message string          // for the history
	Since   time.Time       // when the task was first claimed; later runs search for its commit from then on
	// AloneUntil is until when no later run can have begun. Until then, a first run looks for the task's commit only
	// among the tasks that the HEAD of its checkout lists.
	AloneUntil time.Time
	KeepBoth   bool // keep conflicting paths as NAME and NAME.conflict-<task>, instead of failing
}

// Commit describes a commit, or reports that none was needed.
type Commit struct {
	Generation int64
	ID         string // random id of the commit
	TaskID     string
	Attempt    int
	Time       time.Time
	Message    string
	Changed    []string        // paths that the commit wrote or removed, sorted; see Repo.SetChanged
	Rewritten  []string        // files that were written with the content that they had, sorted
	Conflicts  []string        // paths that both sides changed, with KeepBoth
	NoChange   bool            // there was nothing to commit
	Already    bool            // another run of the task has committed; this one committed nothing
	Result     json.RawMessage // CommitOptions.Result of the commit
}

// CommitOf returns the commit that a manifest describes, without its result. Changed is empty if the header has
// ManyChanged; see Repo.SetChanged.
func CommitOf(m *format.Manifest) Commit {
	h := m.Header
	return Commit{
		Generation: h.Generation, ID: h.Commit, TaskID: h.TaskID, Attempt: h.Attempt, Time: h.Time, Message: h.Message,
		Changed: m.ChangedPaths(), Conflicts: h.Conflicts,
	}
}

// SetChanged sets the Changed of a commit whose manifest does not list it, to what differs between the version and its
// parent's. It stays empty if one of them was removed or is damaged.
func (r *Repo) SetChanged(ctx context.Context, ref format.Ref, h format.Header, c *Commit) error {
	if !h.ManyChanged || h.Parent == nil {
		return nil
	}
	at, err := r.FindManifest(ctx, ref, h.Generation)
	var before, after *Loaded
	if err == nil {
		after, err = r.Load(ctx, ref, *at)
	}
	if err == nil {
		before, err = r.Load(ctx, ref, *h.Parent)
	}
	if format.IsDamage(err) {
		return nil
	}
	if err == nil {
		c.Changed = format.ChangedPaths(before.Set.Diff(after.Set))
	}
	return err
}

// toCommit returns the commit that a manifest describes, with the task's result.
func (r *Repo) toCommit(ctx context.Context, ref format.Ref, m *format.Manifest) (*Commit, error) {
	c := CommitOf(m)
	c.Result = m.Header.Result
	if err := r.SetChanged(ctx, ref, m.Header, &c); err != nil {
		return nil, err
	}
	if len(m.Result) == 0 {
		return &c, nil
	}
	var size int64
	for _, b := range m.Result {
		size += b.Raw
	}
	if size > MaxResult {
		return nil, fmt.Errorf("%w: the result of commit %s is %d bytes; the limit is %d",
			objects.ErrCorrupt, c.ID, size, MaxResult)
	}
	var err error
	c.Result, err = r.ReadFile(ctx, ref.Tenant, &format.Entry{Size: size, Blobs: m.Result})
	return &c, err
}

// ConflictError is returned when another commit has changed the same paths since the checkout. It wraps
// objects.ErrConflict. Nothing was committed: check out and run again.
type ConflictError struct {
	Ref   format.Ref
	Paths []string // sorted
}

// Error implements error.
func (e *ConflictError) Error() string {
	const limit = 5
	list := strings.Join(e.Paths[:min(limit, len(e.Paths))], ", ")
	if more := len(e.Paths) - limit; more > 0 {
		list = fmt.Sprintf("%s and %d more", list, more)
	}
	return fmt.Sprintf("workspace %s: another commit changed the same paths: %s", e.Ref, list)
}

// Unwrap returns objects.ErrConflict.
func (e *ConflictError) Unwrap() error { return objects.ErrConflict }
