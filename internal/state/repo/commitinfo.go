package repo

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// CommitOptions says who commits and what goes with the files.
type CommitOptions struct {
	TaskID   string          // at most 56 bytes; the same for every attempt. Empty: not a task, nothing is deduplicated
	Attempt  int             // number of the run, from 1
	Result   json.RawMessage // kept with the commit, returned to later attempts
	Message  string          // for the history
	Since    time.Time       // when the task was first claimed: commits since then are searched for TaskID
	KeepBoth bool            // keep a path that both sides changed as name and name.conflict-<task>, instead of failing
}

// Commit is one committed version, or the finding that none was needed.
type Commit struct {
	Generation int64
	ID         string // random id of the commit
	TaskID     string
	Attempt    int
	Time       time.Time
	Message    string
	Changed    []string        // paths this task wrote or removed, sorted
	Conflicts  []string        // paths that both sides changed and KeepBoth kept twice
	NoChange   bool            // the tree equals what was checked out; nothing was written
	Already    bool            // another attempt of the task has committed; nothing was written
	Result     json.RawMessage // CommitOptions.Result of the commit that counts
}

// ConflictError is returned by Commit when another task has changed the same
// paths since the checkout. It wraps objects.ErrConflict. Nothing was committed: check
// out and run again.
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
	return fmt.Sprintf("workspace %s: changed by another task meanwhile: %s", e.Ref, list)
}

// Unwrap returns objects.ErrConflict.
func (e *ConflictError) Unwrap() error { return objects.ErrConflict }
