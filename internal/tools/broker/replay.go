package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
)

// replayLog holds the calls that earlier runs of the task recorded, and counts this run's calls.
type replayLog struct {
	mu         sync.Mutex
	counts     map[Key]int // this run's calls so far, by key without N
	entries    map[Key]JournalEntry
	versions   map[Key]uint64 // versions of all entries, including those of calls that were not made
	unmatched  int            // entries that this run has not reached yet
	allMatched chan struct{}  // closed when unmatched is 0
	diverged   bool           // this run makes different calls than the earlier ones
}

func openReplayLog(ctx context.Context, cfg Config) (*replayLog, error) {
	l := &replayLog{
		counts: map[Key]int{}, entries: map[Key]JournalEntry{}, versions: map[Key]uint64{},
		allMatched: make(chan struct{}),
	}
	if cfg.Task.Run > 1 {
		found, err := cfg.Journal.Lookup(ctx, cfg.Task.Tenant, cfg.Task.ID)
		if err != nil {
			return nil, fmt.Errorf("read the journal: %w", err)
		}
		for _, r := range found {
			l.versions[r.Key] = r.Version
			// An entry that names another task is not replayed. Its version is needed to replace it.
			if r.State != NotMade && r.Key.Task == cfg.Task.ID && r.Key.Tenant == cfg.Task.Tenant {
				l.entries[r.Key] = r
			}
		}
	}
	l.unmatched = len(l.entries)
	if l.unmatched == 0 {
		close(l.allMatched)
	}
	return l, nil
}

// next numbers the call among this run's calls with the same key. It returns the full key, and the journal entry if
// there is one.
func (l *replayLog) next(k Key) (Key, JournalEntry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[k]++
	k.N = l.counts[k]
	r, ok := l.entries[k]
	if ok {
		if l.unmatched--; l.unmatched == 0 {
			close(l.allMatched)
		}
	}
	return k, r, ok
}

// reorderGrace is how long a new mutating call waits for this run to reach all entries. If a program makes calls in
// parallel, a new call may arrive shortly before a recorded one.
const reorderGrace = 250 * time.Millisecond

// caughtUp reports whether this run has reached all entries, so that a call without an entry is new. It waits for that
// at most reorderGrace. If it has waited in vain, the run has diverged, and later calls of caughtUp do not wait.
func (l *replayLog) caughtUp(ctx context.Context) bool {
	l.mu.Lock()
	diverged := l.diverged
	l.mu.Unlock()
	if diverged {
		return false
	}
	select {
	case <-l.allMatched:
		return true
	default:
	}
	select {
	case <-l.allMatched:
		return true
	case <-time.After(reorderGrace):
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.diverged = l.unmatched > 0
	return l.unmatched == 0
}

// checkEffects is the hint for a call that an earlier run may have made.
const checkEffects = "check its effects; to make the call again, submit the task again"

// replay returns the recorded result of a call that an earlier run made. A call without a recorded result
// is made, unless it may take effect a second time: then it is in doubt, and the program or the task's
// author must decide.
func replay(cfg Config, log *replayLog) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		k, recorded, found := log.next(Key{
			Tenant: cfg.Task.Tenant, Task: cfg.Task.ID, Server: c.Server, Tool: c.Tool, ArgsHash: argsHash(c.Args),
		})
		c.key, c.version, c.originalArgs = k, log.versions[k], c.Args
		if found && recorded.State == Answered {
			return recordedResult(ctx, cfg, c, recorded)
		}
		switch {
		case c.repeatable():
		case found:
			return Result{}, fail(c, errcode.InDoubt, "an earlier run may have made this call").
				hint(checkEffects)
		case !cfg.Task.Corrected && !log.caughtUp(ctx):
			return Result{}, fail(c, errcode.InDoubt,
				"this run makes different calls than the one before, so this call may be a repetition").
				hint("make the program's calls the same in every run, or submit the task again")
		}
		return next(ctx, c)
	}
}

// recordedResult returns the result in an entry. It spills the files again, because the earlier run may
// have been on another host.
func recordedResult(ctx context.Context, cfg Config, c Call, recorded JournalEntry) (Result, error) {
	if len(recorded.Tokens) > 0 && cfg.Hooks.Open != nil {
		if err := cfg.Hooks.Open(recorded.Tokens); err != nil {
			cfg.Log.WarnContext(ctx, "values of privacy tokens not restored", "task_id", cfg.Task.ID, "error", err)
		}
	}
	for _, f := range recorded.Files {
		if cfg.Hooks.Spill == nil {
			return Result{}, fail(c, errcode.ResultTooLarge, "the result is a file, and this task cannot store files")
		}
		if _, err := cfg.Hooks.Spill(ctx, f.Name, f.MediaType, f.Data); err != nil {
			return Result{}, fmt.Errorf("write the result to a file: %w", err)
		}
	}
	if recorded.Error != nil {
		return Result{Replayed: true, files: recorded.Files}, recorded.Error
	}
	return Result{Value: recorded.Value, Content: recorded.Content, Replayed: true, files: recorded.Files}, nil
}
