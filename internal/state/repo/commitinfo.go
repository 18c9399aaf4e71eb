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
	TaskID   string          // at most 64 bytes; the same for every attempt. Empty: not a task, nothing is deduplicated
	Attempt  int             // from 1
	Result   json.RawMessage // kept with the commit, returned to later attempts
	Message  string          // for the log
	Since    time.Time       // when the task was first claimed: commits since then are searched for TaskID
	KeepBoth bool            // a path changed by both is kept as name and name.conflict-<task> instead of failing
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
	Result     json.RawMessage // Change.Result of the commit that counts
}

// ConflictError is returned by Commit when another task has changed the same
// paths since the checkout. It wraps objects.ErrConflict. Nothing was committed; check
// out again and run again.
type ConflictError struct {
	Ref   format.Ref
	Paths []string // sorted
}

func (e *ConflictError) Error() string {
	const shown = 5
	list := strings.Join(e.Paths[:min(shown, len(e.Paths))], ", ")
	if more := len(e.Paths) - shown; more > 0 {
		list = fmt.Sprintf("%s and %d more", list, more)
	}
	return fmt.Sprintf("workspace %s: changed by another task meanwhile: %s", e.Ref, list)
}

func (e *ConflictError) Unwrap() error { return objects.ErrConflict }
