package executor

import (
	"cmp"
	"context"
	"path/filepath"
	"strconv"
	"time"
)

// An Environment is one kind of boxes of a pool: what is in them. The boxes of all environments share
// the pool's slots and memory.
type Environment struct {
	Name     string // as in Key; a key without a known name gets the first environment
	MinReady int    // unbound boxes kept ready; 0: as PoolOptions.MinReady, negative: none

	// Prepare returns what the boxes are made from. It may take long: it fetches or installs. The pool
	// calls it before the first box, one call at a time, and again after an error, at intervals, until
	// it succeeds once. nil: the driver's default root and nothing more.
	Prepare func(ctx context.Context) (Root, error)

	// Required ends the pool if Prepare fails. Otherwise only requests for this environment fail.
	Required bool
}

// Root is what the boxes of an environment are made from.
type Root struct {
	Image       string   // as Spec.Image; empty: the driver's default
	Mounts      []Mount  // in addition to those of the pool
	Preload     []string // Python modules that are imported before programs start
	Description string   // of Image, for people; empty: the driver's default
	Added       string   // what Mounts add, for people; may be empty
	Modules     []string // distributions with versions, in addition to the standard library
}

// environment is an Environment with its state in a pool.
type environment struct {
	Environment
	template  template
	preparing chan struct{} // a lock that a context can abandon: holds one value while Prepare runs

	// Guarded by Pool.mu.
	root     *Root // nil until prepared; written with preparing held, too
	failures bootFailures
	lastBoot boot
}

// boot is how a box was started.
type boot struct {
	duration time.Duration
	restored bool // from a snapshot
}

func newEnvironments(o PoolOptions) []*environment {
	list := make([]*environment, len(o.Environments))
	for i, e := range o.Environments {
		list[i] = &environment{Environment: e, preparing: make(chan struct{}, 1)}
		list[i].template.snapshot.dir = filepath.Join(o.snapshotsDir(), strconv.Itoa(i))
		list[i].template.snapshot.log = o.Log.With("environment", e.Name)
	}
	return list
}

// environment returns the environment of that name, or the first one.
func (p *Pool) environment(name string) *environment {
	for _, e := range p.envs {
		if e.Name == name {
			return e
		}
	}
	return p.envs[0]
}

// prepared returns what boxes of an environment are made from. It calls Prepare if that has not succeeded.
func (p *Pool) prepared(ctx context.Context, e *environment) (Root, error) {
	select {
	case e.preparing <- struct{}{}:
		defer func() { <-e.preparing }()
	case <-ctx.Done():
		return Root{}, context.Cause(ctx)
	}
	if e.root != nil {
		return *e.root, nil
	}
	var root Root
	if e.Prepare != nil {
		var err error
		if root, err = e.Prepare(ctx); err != nil {
			return Root{}, &prepareError{err}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.root = &root
	return root, nil
}

// prepareError marks an error of Prepare.
type prepareError struct{ error }

func (e *prepareError) Unwrap() error { return e.error }

// infoOf describes the boxes of an environment; p.mu is held.
func (p *Pool) infoOf(e *environment) Info {
	info := p.info
	if e.root == nil {
		return info
	}
	info.Environment = cmp.Or(e.root.Description, info.Environment)
	if e.root.Image != "" {
		info.MultiTenant = info.ImageMultiTenant
	}
	if e.root.Added != "" {
		info.Environment += " + " + e.root.Added
	}
	return info
}

// EnvironmentStats describes one environment of a pool and counts its boxes.
type EnvironmentStats struct {
	Name                            string
	Description                     string // empty until prepared
	Modules                         []string
	Warming, Ready, Bound, Acquired int
	Waiting                         int    // requests
	WaitingMemory                   int    // of Waiting, those blocked by the memory limit
	LastError                       string // why no box of it could be created; empty once one was
	LastReason                      Reason
	CreateTime                      time.Duration // of the last box; 0: there was none
	Restored                        bool          // the last box was restored from a snapshot
}

// Environments returns the current state of each environment, in the order of the options.
func (p *Pool) Environments() []EnvironmentStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]EnvironmentStats, len(p.envs))
	for i, e := range p.envs {
		list[i] = p.environmentStats(e)
	}
	return list
}

// environmentStats needs p.mu.
func (p *Pool) environmentStats(e *environment) EnvironmentStats {
	s := EnvironmentStats{
		Name: e.Name, CreateTime: e.lastBoot.duration, Restored: e.lastBoot.restored,
		Warming: p.sched.countOf(e, warming), Ready: p.sched.countOf(e, ready),
		Bound: p.sched.countOf(e, bound), Acquired: p.sched.countOf(e, acquired),
	}
	if e.root != nil {
		s.Description, s.Modules = p.infoOf(e).Environment, e.root.Modules
	}
	for _, r := range p.sched.waiting {
		if r.env != e {
			continue
		}
		s.Waiting++
		if r.lacksMemory {
			s.WaitingMemory++
		}
	}
	if e.failures.err != nil {
		s.LastError, s.LastReason = e.failures.err.Error(), ReasonOf(e.failures.err)
	}
	return s
}

// backoff returns how much longer no box of the environment is to be created.
func (e *environment) backoff(now time.Time) time.Duration { return max(0, e.failures.until.Sub(now)) }
