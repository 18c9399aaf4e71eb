package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
)

// past is what earlier attempts of the task recorded, and how far this attempt has come through it.
type replayLog struct {
	mu         sync.Mutex
	counts     map[Key]int // calls so far, by key without N
	entries    map[Key]JournalEntry
	unmatched  int           // entries that were made, or may have been, and were not asked for yet
	allMatched chan struct{} // closed when left is 0
	diverged   bool          // this attempt makes other calls than were recorded
}

func openReplayLog(ctx context.Context, cfg Config) (*replayLog, error) {
	p := &replayLog{counts: map[Key]int{}, entries: map[Key]JournalEntry{}, allMatched: make(chan struct{})}
	if cfg.Task.Run > 1 {
		found, err := cfg.Journal.Lookup(ctx, cfg.Task.Tenant, cfg.Task.ID)
		if err != nil {
			return nil, fmt.Errorf("read the journal: %w", err)
		}
		for _, r := range found {
			if r.State != NotMade && r.Key.Task == cfg.Task.ID && r.Key.Tenant == cfg.Task.Tenant {
				p.entries[r.Key] = r
			}
		}
	}
	p.unmatched = len(p.entries)
	if p.unmatched == 0 {
		close(p.allMatched)
	}
	return p, nil
}

// next gives the call its number among equal ones, and what is recorded of it.
func (p *replayLog) next(k Key) (Key, JournalEntry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[k]++
	k.N = p.counts[k]
	r, ok := p.entries[k]
	if ok {
		if p.unmatched--; p.unmatched == 0 {
			close(p.allMatched)
		}
	}
	return k, r, ok
}

// settle is how long a new mutating call waits for recorded ones to be asked for: of calls made in
// parallel, a new one may arrive a moment before an old one does.
const reorderGrace = 250 * time.Millisecond

// matches reports whether everything recorded has been asked for, so that a call that is not
// recorded comes after all that are, and is new.
func (p *replayLog) caughtUp(ctx context.Context) bool {
	p.mu.Lock()
	diverged := p.diverged
	p.mu.Unlock()
	if diverged {
		return false
	}
	select {
	case <-p.allMatched:
		return true
	default:
	}
	timer := time.NewTimer(reorderGrace)
	defer timer.Stop()
	select {
	case <-p.allMatched:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.diverged = p.unmatched > 0
	return p.unmatched == 0
}

// replay answers from the journal what an earlier attempt was answered. What the journal does not
// settle goes on to the tool, unless it may change something a second time: then the call is in
// doubt, and the program, or the task's author, has to say.
func replay(cfg Config, p *replayLog) func(handler) handler {
	return func(next handler) handler {
		return func(ctx context.Context, c Call) (Result, error) {
			k := Key{Tenant: cfg.Task.Tenant, Task: cfg.Task.ID, Server: c.Server, Tool: c.Tool, ArgsHash: argsHash(c.Args)}
			k, was, found := p.next(k)
			c.key, c.originalArgs = k, c.Args
			if found && was.State == Answered {
				if was.Error != nil {
					return Result{Replayed: true}, was.Error
				}
				for _, f := range was.Files { // the attempt that had them may have been on another host
					if cfg.Hooks.Spill == nil {
						return Result{}, fail(c, errcode.ResultTooLarge, "the answer is a file, and there is no place for files")
					}
					if _, err := cfg.Hooks.Spill(ctx, f.Name, f.MediaType, f.Data); err != nil {
						return Result{}, fmt.Errorf("keep the answer as a file: %w", err)
					}
				}
				return Result{Value: was.Value, Replayed: true}, nil
			}
			unsure := c.def.Annotations.Mutates() && !c.def.Annotations.Idempotent && !cfg.Task.RepeatInDoubt
			switch {
			case !unsure:
			case found:
				return Result{}, fail(c, errcode.InDoubt, "an earlier attempt was about to make this call, and nobody knows whether it did").
					hint("see what is there, or let the task repeat calls in doubt")
			case !p.caughtUp(ctx):
				return Result{}, fail(c, errcode.InDoubt, "this attempt makes other calls than the one before, so that this one may be made twice").
					hint("make the program's calls the same in every run, or let the task repeat calls in doubt")
			}
			return next(ctx, c)
		}
	}
}
