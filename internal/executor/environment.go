package executor

import (
	"cmp"
	"context"
	"path/filepath"
	"strconv"
	"time"
)

// An Environment describes one kind of box in a pool. The boxes of all environments share the pool's slots and
// memory.
type Environment struct {
	Name     string // matches Key.Environment; a key with an unknown name gets the first environment
	MinReady int    // unbound boxes kept ready; default PoolOptions.MinReady, negative for none

	// Prepare returns what the boxes are created from. It may take long, because it fetches images and
	// installs packages. The pool calls it before it creates the environment's first box, one call at a time, and
	// retries at intervals until it succeeds once. If Prepare is nil, boxes have the driver's default root.
	Prepare func(ctx context.Context) (Root, error)

	// Required ends the pool if Prepare fails. Otherwise only requests for this environment fail.
	Required bool
}

// Root is what the boxes of an environment are created from.
type Root struct {
	Image       string   // see Spec.Image
	Mounts      []Mount  // in addition to PoolOptions.Mounts
	Preload     []string // Python modules that are imported before programs start
	Description string   // describes Image to people; default the driver's
	Added       string   // describes to people what Mounts add; may be empty
	Packages    []string // installed distributions with versions, without the standard library
}

// environment is an Environment with its state in a pool.
type environment struct {
	Environment
	template  boxTemplate
	preparing chan struct{} // a lock on which callers can wait with a context; full while it is held

	// Guarded by Pool.mu.
	root     *Root // nil until prepared; written only while preparing is held as well
	failures bootFailures
	lastBoot boot
	boxMB    float64 // memory of the last box that was created, while it was new
}

// boot says how a box was started.
type boot struct {
	duration time.Duration
	restored bool // the box was restored from a snapshot
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

// environment returns the named environment, or the first one if the name is unknown.
func (p *Pool) environment(name string) *environment {
	for _, e := range p.envs {
		if e.Name == name {
			return e
		}
	}
	return p.envs[0]
}

// prepared returns the Root of an environment. It calls Prepare unless that has already succeeded.
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
	Packages                        []string
	Warming, Ready, Bound, Acquired int
	Waiting                         int    // requests
	WaitingMemory                   int    // waiting requests that are blocked by the memory limit
	LastError                       string // why the last box could not be created; empty if it could
	LastReason                      Reason
	CreateTime                      time.Duration // how long the last box took to create; 0 before the first box
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

// environmentStats describes one environment; p.mu is held.
func (p *Pool) environmentStats(e *environment) EnvironmentStats {
	s := EnvironmentStats{
		Name: e.Name, CreateTime: e.lastBoot.duration, Restored: e.lastBoot.restored,
		Warming: p.sched.countOf(e, warming), Ready: p.sched.countOf(e, ready),
		Bound: p.sched.countOf(e, bound), Acquired: p.sched.countOf(e, acquired) + p.sched.countOf(e, cleaning),
	}
	if e.root != nil {
		s.Description, s.Packages = p.infoOf(e).Environment, e.root.Packages
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

// backoff returns how long to wait before another box of the environment is created.
func (e *environment) backoff(now time.Time) time.Duration { return max(0, e.failures.until.Sub(now)) }
