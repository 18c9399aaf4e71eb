package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"
)

// A Pool keeps boxes warm and lends them out, one task at a time.
//
// A box is warming, then ready and unbound, then leased; after its first lease it is
// bound to that tenant and network and waits for the next lease of the same key. It
// never serves another: it is burned instead, when it breaks, when its tree is in
// doubt, when it idled for long, or when somebody else needs its place.
//
// Everything that changes the pool goes through schedule, under one mutex: it hands
// boxes to waiting leases in the order in which they came. Only Run makes and
// destroys boxes, and waits for all that it has started.
type Pool struct {
	driver Driver
	opts   PoolOptions
	start  func(ctx context.Context, box Box, preload []string, template *template) (boxRunner, error)
	envs   []*environment // at least one
	log    *slog.Logger
	wake   chan struct{} // something for Run to do
	ready  chan struct{} // closed when a box was ready for the first time

	mu       sync.Mutex
	boxes    map[int]*pooledBox // by slot; what is being destroyed still has its slot
	doomed   []*pooledBox       // burned, and not yet handed to Run's destroyers
	waiting  []*request         // in order of arrival
	memoryMB int                // leased
	closed   error              // why leases are refused: ErrPoolClosed, and the reason where there is one
	info     Info
	disks    diskMode
	doubt    bool  // the first box could not be made: Run is to probe the driver
	tried    bool  // a box that was prepared could not be made
	unable   error // why the pool cannot go on
	stats    PoolStats
	pace     pace
	run      string // begins the names of this process's boxes
	made     int    // boxes ever begun
}

// Key says who a box is bound to.
type Key struct {
	Tenant      string
	Network     string // what the box may reach; boxes of different reach are not exchanged
	Environment string // by name; boxes of different environments are not exchanged
}

// PoolEvent is one step in the life of a box: "created", "acquired", "ran", "released",
// "discarded", "evicted", "destroyed".
type PoolEvent struct {
	What, BoxID, Tenant, Task string
}

// PoolStats counts boxes by what they do now, and what has happened so far.
type PoolStats struct {
	Warming, Ready, Bound, Acquired, Destroying, Max int
	Waiting                                          int // leases that wait for a box
	MemoryMB, MemoryMBTotal                          int // leased, and the limit

	Created, CreateErrors, Discarded, Evicted, Died uint64
	Restored                                        uint64 // of those created: from a checkpoint, not by a boot
	Acquires, ColdAcquires                          uint64
	Waited                                          time.Duration // by all leases together

	LastError  string // why no box of an environment could be made; empty once one was
	LastReason Reason // the same in a word
}

// ErrPoolClosed is returned by Acquire of a pool whose Run has ended.
var ErrPoolClosed = errors.New("the pool is closed")

// boxRunner is what a pool needs of a runner.
type boxRunner interface {
	run(ctx context.Context, p Program, hooks Hooks) (Verdict, error)
	alive() bool
	ended() <-chan struct{}          // closed when the runner has ended, however it ended
	restored() bool                  // it is a copy of another one
	close(ctx context.Context) error // destroys the box; may be called again
}

type realRunner struct{ *runner }

func (r realRunner) ended() <-chan struct{} { return r.done }
func (r realRunner) restored() bool         { return r.from == restored }

// NewPool returns a pool that has no boxes until Run is called.
func NewPool(driver Driver, opts PoolOptions) (*Pool, error) {
	opts, err := opts.orDefaults()
	if err != nil {
		return nil, fmt.Errorf("new pool: %w", err)
	}
	return &Pool{
		driver: driver,
		opts:   opts,
		envs:   newEnvironments(opts),
		start: func(ctx context.Context, box Box, preload []string, template *template) (boxRunner, error) {
			r, err := startRunner(ctx, box, preload, template)
			if err != nil {
				return nil, err
			}
			return realRunner{r}, nil
		},
		log:   opts.Log,
		wake:  make(chan struct{}, 1),
		ready: make(chan struct{}),
		boxes: map[int]*pooledBox{},
		run:   opts.Owner + "-" + strconv.FormatInt(time.Now().UnixMilli(), 36),
	}, nil
}

// Ready is closed when a program would run at once for the first time: a box is warm, or none is
// to be kept so.
func (p *Pool) Ready() <-chan struct{} { return p.ready }

// Info describes the driver, and boxes of the first environment; it is empty until Run has probed it.
func (p *Pool) Info() Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.infoOf(p.envs[0])
}

// Stats counts the pool as it is now.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Max, s.Waiting = p.opts.Max, len(p.waiting)
	s.MemoryMB, s.MemoryMBTotal = p.memoryMB, p.opts.MemoryMBTotal
	for _, e := range p.envs {
		if e.failures.err != nil {
			s.LastError, s.LastReason = e.failures.err.Error(), ReasonOf(e.failures.err)
			break
		}
	}
	for _, b := range p.boxes {
		switch b.state {
		case warming:
			s.Warming++
		case ready:
			s.Ready++
		case bound:
			s.Bound++
		case acquired:
			s.Acquired++
		case destroying:
			s.Destroying++
		}
	}
	return s
}

// WarmTenants are the tenants for whom a box is idle, when there is none for anybody else unless one of those
// is destroyed; nil otherwise.
func (p *Pool) WarmTenants() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.boxes) < p.opts.Max || p.opts.Reuse == ReuseNever {
		return nil
	}
	kept := map[string]bool{}
	for _, b := range p.boxes {
		if b.state == ready {
			return nil
		}
		if b.state == bound {
			kept[b.key.Tenant] = true
		}
	}
	return kept
}

// Run sweeps what a dead predecessor left, and keeps the pool until ctx ends; then it destroys every box, leased ones too, and returns nil. Any
// other error means that the pool could not work. It may be called once.
func (p *Pool) Run(ctx context.Context) error {
	if err := p.prepare(ctx); err != nil {
		err = fmt.Errorf("start pool: %w", err)
		p.shut(fmt.Errorf("%w: %w", ErrPoolClosed, err))
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup // boxes being made, watched and destroyed
	var unable error
	for ctx.Err() == nil && unable == nil {
		next := p.act(ctx, &work)
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-next:
		}
		unable = p.prove(ctx)
	}
	cancel()
	p.shut(errors.Join(ErrPoolClosed, unable))
	p.act(ctx, &work) // destroys what is left
	work.Wait()
	return errors.Join(unable, p.cleanUp(context.WithoutCancel(ctx)))
}

// prepare gets the host into a known state.
func (p *Pool) prepare(ctx context.Context) error {
	if s, ok := p.driver.(Sweeper); ok {
		if err := s.Sweep(ctx, p.opts.Owner); err != nil {
			return err
		}
	}
	if err := p.sweepFiles(); err != nil {
		return err
	}
	describe := func(context.Context) (Info, error) { return Info{}, nil }
	if inspector, ok := p.driver.(Inspector); ok {
		describe = inspector.Inspect
	} else if prober, ok := p.driver.(Prober); ok {
		describe = prober.Probe
	}
	info, err := describe(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info = info
	if p.opts.DiskMB < 0 || os.Geteuid() != 0 {
		p.disks = disksOff
	}
	return nil
}

// prove probes the driver after the first box could not be made: the probe knows better why, and
// what may be mended it mends.
func (p *Pool) prove(ctx context.Context) error {
	p.mu.Lock()
	doubt, unable := p.doubt, p.unable
	p.doubt = false
	p.mu.Unlock()
	if unable != nil {
		return fmt.Errorf("run pool: %w", unable)
	}
	prober, ok := p.driver.(Inspector)
	if !doubt || !ok || ctx.Err() != nil {
		return nil
	}
	info, err := prober.Probe(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("run pool: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info = info
	return nil
}

// act starts what schedule finds to do and returns a timer for the next time to look.
func (p *Pool) act(ctx context.Context, work *sync.WaitGroup) <-chan time.Time {
	p.mu.Lock()
	create, next := p.schedule()
	doomed := p.doomed
	p.doomed = nil
	var begun []*pooledBox
	for _, e := range create {
		begun = append(begun, p.begin(e))
	}
	p.mu.Unlock()
	for _, b := range doomed {
		work.Go(func() { p.destroy(ctx, b) })
	}
	for _, b := range begun {
		work.Go(func() { p.make(ctx, b, work) })
	}
	if next == 0 {
		return nil
	}
	return time.After(next)
}

// wakeRun lets Run look again.
func (p *Pool) wakeRun() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// shut refuses leases, now and from now on, and burns every box.
func (p *Pool) shut(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = reason
	for _, w := range p.waiting {
		w.refuse(reason)
	}
	p.waiting = nil
	for _, b := range p.boxes {
		if b.state != warming { // whoever makes it sees that the pool is closed
			p.discard(b)
		}
	}
}

func (p *Pool) trace(what string, b *pooledBox, task string) {
	if p.opts.Trace != nil {
		p.opts.Trace(PoolEvent{What: what, BoxID: b.id, Tenant: b.key.Tenant, Task: task})
	}
}
