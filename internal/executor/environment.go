package executor

import (
	"cmp"
	"context"
	"path/filepath"
	"strconv"
	"time"
)

// An Environment is one kind of boxes of a pool: what is in them. The boxes of all environments
// share the pool's places and its memory.
type Environment struct {
	Name     string // of keys; a key that names none of the pool's means its first
	MinReady int    // unbound boxes kept ready; the pool's, negative: none

	// Prepare makes what the boxes are made from, which may take long: it fetches or installs. It is
	// called before the first box, one call at a time, and again after an error, at intervals, until
	// it succeeds once. nil: the driver's own root and nothing more.
	Prepare func(ctx context.Context) (Root, error)

	// Required environments end the pool when they cannot be prepared; of others only their own
	// leases are told.
	Required bool
}

// Root is what the boxes of an environment are made from.
type Root struct {
	Image       string   // of Spec; empty: the driver's own
	Mounts      []Mount  // beside those of the pool
	Preload     []string // Python modules that programs find imported
	Description string   // of Image, for people; empty: the driver's own
	Added       string   // what Mounts add to it, for people; may be empty
	Modules     []string // distributions with their versions, beside Python's own modules
}

// environment is an Environment and what the pool knows of it. Its fields below mu's belong to
// Pool.mu.
type environment struct {
	Environment
	template template

	preparing chan struct{} // full while somebody prepares it
	root      *Root         // once it is prepared; written with preparing and Pool.mu held

	failures failures
	last     made // the last box
}

// made is how a box was made.
type made struct {
	took     time.Duration
	restored bool // from a checkpoint, not by a boot
}

func newEnvironments(o PoolOptions) []*environment {
	list := make([]*environment, len(o.Environments))
	for i, e := range o.Environments {
		list[i] = &environment{Environment: e, preparing: make(chan struct{}, 1)}
		list[i].template.snapshot.dir = filepath.Join(o.snapshots(), strconv.Itoa(i))
		list[i].template.snapshot.log = o.Log.With("environment", e.Name)
	}
	return list
}

// environment is the one of a key, by its name.
func (p *Pool) environment(name string) *environment {
	for _, e := range p.envs {
		if e.Name == name {
			return e
		}
	}
	return p.envs[0]
}

// prepared returns what boxes of an environment are made from, after making it where it must.
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
			return Root{}, &unprepared{err}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.root = &root
	return root, nil
}

// unprepared marks an error of Prepare.
type unprepared struct{ error }

func (e *unprepared) Unwrap() error { return e.error }

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

// EnvironmentStats is the part of one environment in a pool.
type EnvironmentStats struct {
	Name                            string
	Description                     string // what it is; empty until it is prepared
	Modules                         []string
	Warming, Ready, Bound, Acquired int
	Waiting                         int    // leases
	WaitingMemory                   int    // those of them for which there is no memory
	LastError                       string // why no box of it could be made; empty once one was
	LastReason                      Reason
	CreateTime                      time.Duration // what the last box took; 0: none was made yet
	Restored                        bool          // it was restored from a checkpoint, not booted
}

// Environments counts the pool's boxes by environment, in the order of its options.
func (p *Pool) Environments() []EnvironmentStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]EnvironmentStats, len(p.envs))
	for i, e := range p.envs {
		s := &list[i]
		s.Name = e.Name
		s.CreateTime, s.Restored = e.last.took, e.last.restored
		if e.root != nil {
			s.Description, s.Modules = p.infoOf(e).Environment, e.root.Modules
		}
		s.Warming, s.Ready, s.Bound, s.Acquired = p.countOf(e, warming), p.countOf(e, ready), p.countOf(e, bound), p.countOf(e, acquired)
		for _, w := range p.waiting {
			if w.env == e {
				s.Waiting++
				if w.lacksMemory {
					s.WaitingMemory++
				}
			}
		}
		if e.failures.err != nil {
			s.LastError, s.LastReason = e.failures.err.Error(), ReasonOf(e.failures.err)
		}
	}
	return list
}

func (p *Pool) countOf(e *environment, s boxState) int {
	n := 0
	for _, b := range p.boxes {
		if b.env == e && b.state == s {
			n++
		}
	}
	return n
}

// paused is how much longer no box of the environment is to be made.
func (e *environment) paused(now time.Time) time.Duration { return max(0, e.failures.until.Sub(now)) }
