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

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// ErrPoolClosed is returned by Acquire after Run has ended.
var ErrPoolClosed = errors.New("the pool is closed")

// A Pool keeps boxes warm for tasks to acquire.
//
// A box is warming, then ready and unbound, then acquired for a request, and cleaned after its release unless it is
// known to be clean. Once acquired, it is bound to the key of the request: it serves only requests that may share it
// (see Key). It is discarded when it breaks, when its workspace is in an unknown state, when it cannot be cleaned,
// after a long idle time, or to make room for another box.
//
// The scheduler makes all decisions, under one mutex. Only Run creates and destroys boxes, and it waits for
// all goroutines that it starts.
type Pool struct {
	driver Driver
	opts   PoolOptions
	// start starts the runner in a box; tests replace it.
	start  func(ctx context.Context, box Box, preload []string, template *boxTemplate) (boxRunner, error)
	envs   []*environment // at least one
	log    *slog.Logger
	wake   chan struct{} // wakes Run to schedule again
	ready  chan struct{} // see Ready
	prefix string        // begins the box ids of this pool
	// hostFree returns the free bytes of the disk of a directory.
	hostFree func(dir string) (int64, error)
	lock     *hostdir.Lock // locks the pool's directories; owned by Run

	mu    sync.Mutex
	sched scheduler
	info  Info
	disks diskMode
	begun int       // number of boxes whose creation has begun
	probe probeMode // whether to probe the driver, because its first box could not be created
	fatal error     // why a required environment could not be prepared; ends Run
}

// probeMode says whether Run is to probe the driver.
type probeMode int

const (
	probeUnneeded probeMode = iota
	probeDue
	probeDone
)

// Key says which requests may share a box: those whose keys differ at most in the workspace.
type Key struct {
	Tenant      string
	Network     string // the destinations that the box may reach
	Environment string // the environment's name
	Workspace   string // a box that last served it is preferred, because the box holds its files
}

// shares reports whether requests with these keys may share a box.
func (k Key) shares(other Key) bool {
	k.Workspace = other.Workspace
	return k == other
}

// PoolEvent is one step in the life of a box: "created", "acquired", "ran" (before each program), "released",
// "discarded", "evicted", "destroyed".
type PoolEvent struct {
	Step, BoxID, Tenant, Task string
}

// PoolStats counts boxes by state, and events since the start.
type PoolStats struct {
	Warming, Ready, Bound, Acquired, Destroying int // a box that is being cleaned counts as acquired
	Max                                         int // the most boxes that may exist; 0 if only memory limits them
	Waiting                                     int // requests
	MemoryMB, MemoryMBTotal                     int // sum of the acquired boxes' memory limits; the most that it may be
	IdleMemoryMB, IdleMemoryMBTotal             int // measured memory of the idle boxes; the most that it may be

	Created, CreateErrors, Discarded, Evicted, Died uint64
	Restored                                        uint64 // boxes that were created from a snapshot
	Acquires, ColdAcquires                          uint64
	WaitTime                                        time.Duration // sum over all Acquires

	LastError  string // why the last box of some environment could not be created; empty if all could
	LastReason Reason // the reason code of LastError
}

// A boxRunner is the part of runnerProcess that a pool uses.
type boxRunner interface {
	run(ctx context.Context, p Program, hooks Hooks) (Verdict, error)
	alive() bool
	awaitChecked(ctx context.Context) error // waits until it is known what the last program has left
	holdsFiles() bool                       // whether the program may have left files that the runner still removes
	awaitReady(ctx context.Context) error   // waits until they are removed
	ended() <-chan struct{}                 // closed when the runner has ended for any reason
	restored() bool                         // whether the box was restored from a snapshot
	close(ctx context.Context) error        // destroys the box; may be called again
}

// NewPool returns a pool without boxes. Run creates them.
func NewPool(driver Driver, opts PoolOptions) (*Pool, error) {
	opts, err := opts.orDefaults()
	if err != nil {
		return nil, fmt.Errorf("new pool: %w", err)
	}
	envs := newEnvironments(opts)
	return &Pool{
		driver: driver,
		opts:   opts,
		envs:   envs,
		start: func(ctx context.Context, box Box, preload []string, template *boxTemplate) (boxRunner, error) {
			r, err := startRunner(ctx, box, preload, template)
			if err != nil {
				return nil, err
			}
			return r, nil
		},
		log:      opts.Log,
		wake:     make(chan struct{}, 1),
		ready:    make(chan struct{}),
		prefix:   opts.Owner + "-" + strconv.FormatInt(time.Now().UnixMilli(), 36),
		hostFree: hostdir.Free,
		sched:    scheduler{opts: opts, envs: envs, boxes: map[int]*pooledBox{}},
	}, nil
}

// Ready is closed when the first environment has a ready box, or at the start of Run if it keeps no box ready.
func (p *Pool) Ready() <-chan struct{} { return p.ready }

// Info describes the driver and the first environment. It is empty until Run has inspected the driver.
func (p *Pool) Info() Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.infoOf(p.envs[0])
}

// Stats returns the current counts.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sched.stats
	s.Max, s.Waiting = p.opts.Max, len(p.sched.waiting)
	s.MemoryMB, s.MemoryMBTotal = p.sched.memoryMB, p.opts.MemoryMBTotal
	s.IdleMemoryMB, s.IdleMemoryMBTotal = int(p.sched.idleMB()), p.opts.IdleMemoryMB
	for _, e := range p.envs {
		if e.failures.err != nil {
			s.LastError, s.LastReason = e.failures.err.Error(), ReasonOf(e.failures.err)
			break
		}
	}
	s.Warming, s.Ready, s.Bound = p.sched.count(warming), p.sched.count(ready), p.sched.count(bound)
	s.Acquired, s.Destroying = p.sched.inUse(), p.sched.count(destroying)
	return s
}

// WarmTenants returns the tenants with a box that is idle or about to be, if the pool is full and has no unbound box.
// Then a task of another tenant has to wait until an idle box is destroyed and a new one is booted. Otherwise it
// returns nil.
func (p *Pool) WarmTenants() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sched.full() || p.opts.Reuse == ReuseNever {
		return nil
	}
	tenants := map[string]bool{}
	for _, b := range p.sched.boxes {
		if b.state == ready {
			return nil
		}
		if b.state == bound || b.state == cleaning && b.expected {
			tenants[b.key.Tenant] = true
		}
	}
	return tenants
}

// Run removes what a dead process of the same owner left behind, and operates the pool until ctx ends, the driver fails
// its probe, or a required environment cannot be prepared. Then it destroys every box, even those in use. Run may be
// called once.
func (p *Pool) Run(ctx context.Context) error {
	if err := p.prepareHost(ctx); err != nil {
		p.lock.Release()
		err = fmt.Errorf("start pool: %w", err)
		p.close(fmt.Errorf("%w: %w", ErrPoolClosed, err))
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup // creates, measures, watches and destroys boxes
	var driverErr error
	if p.opts.IdleMemoryMB > 0 { // else Max bounds the memory and the disk space of idle boxes
		work.Go(func() { p.watchIdle(ctx) })
	}
	for ctx.Err() == nil && driverErr == nil {
		next := p.dispatch(ctx, &work)
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-next:
		}
		driverErr = p.checkDriver(ctx)
	}
	cancel()
	p.close(errors.Join(ErrPoolClosed, driverErr))
	p.dispatch(ctx, &work) // destroys the remaining boxes
	work.Wait()
	return errors.Join(driverErr, p.removeFiles(context.WithoutCancel(ctx)))
}

func (p *Pool) close(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sched.close(reason)
}

// prepareHost removes what dead processes left behind, and inspects the driver.
func (p *Pool) prepareHost(ctx context.Context) error {
	if s, ok := p.driver.(Sweeper); ok {
		if err := s.Sweep(ctx, p.opts.Owner); err != nil {
			return err
		}
	}
	if err := p.resetFiles(); err != nil {
		return err
	}
	var info Info
	var err error
	switch d := p.driver.(type) {
	case Inspector:
		info, err = d.Inspect(ctx)
	case Prober:
		info, err = d.Probe(ctx)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info = info
	if p.opts.DiskMB < 0 || os.Geteuid() != 0 {
		p.disks = disksOff
	}
	p.announceReady()
	return nil
}

// checkDriver returns the error that ends the pool, if there is one. If the first box could not be created,
// it probes the driver: a probe finds the reason, and some drivers then adapt to the host.
func (p *Pool) checkDriver(ctx context.Context) error {
	p.mu.Lock()
	due, fatal := p.probe == probeDue, p.fatal
	if due {
		p.probe = probeDone
	}
	p.mu.Unlock()
	if fatal != nil {
		return fmt.Errorf("run pool: %w", fatal)
	}
	prober, ok := p.driver.(Inspector)
	if !due || !ok || ctx.Err() != nil {
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

// dispatch carries out the scheduler's decisions. It must be called again after each change, and when the returned
// channel delivers a value.
func (p *Pool) dispatch(ctx context.Context, work *sync.WaitGroup) <-chan time.Time {
	p.mu.Lock()
	create, next := p.sched.schedule()
	var begun []*pooledBox
	for _, e := range create {
		begun = append(begun, p.begin(e))
	}
	p.mu.Unlock()
	p.destroyDiscarded(ctx, work)
	p.cleanReleased(ctx, work)
	for _, b := range begun {
		work.Go(func() { p.create(ctx, b, work) })
	}
	if next == 0 {
		return nil
	}
	return time.After(next)
}

// destroyDiscarded starts to destroy the boxes that the scheduler has discarded.
func (p *Pool) destroyDiscarded(ctx context.Context, work *sync.WaitGroup) {
	p.mu.Lock()
	discarded := p.sched.discarded
	p.sched.discarded = nil
	p.mu.Unlock()
	for _, b := range discarded {
		work.Go(func() { p.destroy(ctx, b) })
	}
}

// update changes the state of the pool, assigns boxes to requests, and wakes Run for the rest.
func (p *Pool) update(change func()) {
	p.mu.Lock()
	change()
	p.sched.schedule()
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default: // Run is about to wake
	}
}
