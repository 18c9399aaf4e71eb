package executor

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/executor/runner"
)

type boxState int

const (
	warming boxState = iota
	ready            // idle and unbound
	bound            // idle and bound to a key
	acquired
	cleaning   // released; it becomes bound when what the program has left is removed
	destroying // discarded, and not yet destroyed; it may have no runner
)

// pooledBox is a box in a pool. Its fields are guarded by Pool.mu, except dir, hasDisk, box, runner, views,
// bootTime and freshMB, which are written before the box is ready, and reset, which AcquiredBox.running guards.
type pooledBox struct {
	id    string // never reused
	env   *environment
	slot  int // names the box to the driver; reused after the box is destroyed
	state boxState
	key   Key       // the key of the last request; only requests that share it get the box
	since time.Time // since when the box has been warming, ready, bound or acquired; cleaning does not change it
	cold  bool      // the request waited for the box to be created

	dir      string // host directory of the workspace
	hasDisk  bool   // dir is the mount point of the box's disk
	box      Box
	runner   boxRunner
	views    *views
	bootTime time.Duration
	freshMB  float64   // memory that it used before its first program
	reset    time.Time // when the workspace was reset, see resetWorkspace

	idleMB    float64        // memory that it uses while idle, as last measured
	measured  time.Time      // when idleMB was measured
	memoryMB  int            // memory limit of the request, while the box is acquired or being cleaned
	expected  bool           // while the box is being cleaned: reportTime has not passed yet
	inUse     bool           // from its assignment until Release or Discard, even after the pool is closed
	onDestroy []func() error // see AcquiredBox.OnDestroy
	gone      chan struct{}  // closed when destroy returns, even if the box could not be destroyed
}

// Timeouts are generous: the host may be busy.
const (
	createTimeout  = 60 * time.Second
	destroyTimeout = 60 * time.Second
	destroyDelay   = time.Second // between two attempts to destroy a box
)

// begin reserves a slot for a new box; p.mu is held.
func (p *Pool) begin(e *environment) *pooledBox {
	slot := 0
	for p.sched.boxes[slot] != nil {
		slot++
	}
	p.begun++
	b := &pooledBox{
		env: e, slot: slot, since: time.Now(), id: p.prefix + "-" + strconv.Itoa(p.begun), gone: make(chan struct{}),
	}
	p.sched.boxes[slot] = b
	return b
}

// create makes a box ready, and then watches it until its runner ends.
func (p *Pool) create(ctx context.Context, b *pooledBox, work *sync.WaitGroup) {
	if err := p.build(ctx, b); err != nil {
		err = p.explainFullDisk(err)
		if b.box == nil {
			err = errors.Join(err, p.removeWorkspace(b))
		}
		p.update(func() { p.createFailed(ctx, b, err) })
	} else {
		p.update(func() { p.created(b) })
		work.Go(func() { p.watch(b) })
	}
	if ctx.Err() != nil { // Run may have dispatched for the last time
		p.destroyDiscarded(ctx, work)
	}
}

// createFailed records why a box could not be created. If the box could not be destroyed either, createFailed discards
// it; p.mu is held.
func (p *Pool) createFailed(ctx context.Context, b *pooledBox, err error) {
	if b.box == nil {
		delete(p.sched.boxes, b.slot)
	} else {
		p.sched.discard(b)
	}
	if ctx.Err() != nil {
		return
	}
	if _, ok := errors.AsType[*prepareError](err); !ok {
		if p.sched.stats.Created == 0 && p.probe == probeUnneeded {
			p.probe = probeDue
		}
	} else if b.env.Required {
		p.fatal = err
	}
	p.sched.stats.CreateErrors++
	b.env.failures.add(err, time.Now())
	p.log.WarnContext(ctx, "box creation failed", "box", b.id, "environment", b.env.Name,
		"attempts", b.env.failures.attempts, "reason", ReasonOf(err), "error", err)
}

// created makes a new box available; p.mu is held.
func (p *Pool) created(b *pooledBox) {
	p.sched.stats.Created++
	b.env.lastBoot = boot{b.bootTime, b.runner.restored()}
	if b.env.lastBoot.restored {
		p.sched.stats.Restored++
	}
	b.env.failures, b.env.boxMB = bootFailures{}, b.idleMB
	b.state, b.since = ready, time.Now()
	p.sched.trace("created", b, "")
	if p.sched.closed != nil {
		p.sched.discard(b)
		return
	}
	p.sched.refills.lackingSince = time.Time{}
	p.announceReady()
}

// announceReady closes the ready channel if the first environment has a ready box or keeps none ready; p.mu
// is held.
func (p *Pool) announceReady() {
	select {
	case <-p.ready:
	default:
		if first := p.envs[0]; p.sched.countOf(first, ready) >= min(1, first.MinReady) {
			close(p.ready)
			p.sched.refills.active = time.Now() // a first task is likely to follow
		}
	}
}

// build creates the workspace, the box and its runner. After an error the workspace is left, and b.box if it could not
// be destroyed.
func (p *Pool) build(ctx context.Context, b *pooledBox) error {
	root, err := p.prepared(ctx, b.env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	if err := p.makeWorkspace(ctx, b); err != nil {
		return err
	}
	spec := Spec{
		Name: "w" + strconv.Itoa(b.slot), Owner: p.opts.Owner, Workspace: b.dir, Image: root.Image,
		Views: filepath.Join(filepath.Dir(b.dir), "views"), Mounts: slices.Concat(p.opts.Mounts, root.Mounts),
		Env: runner.Env(),
	}
	if b.views, err = mountViews(&spec); err != nil {
		return err
	}
	err = p.boot(ctx, b, spec, root.Preload)
	if _, ok := errors.AsType[*snapshotError](err); ok && b.box == nil { // the snapshot has been removed
		err = p.boot(ctx, b, spec, root.Preload)
	}
	return err
}

// boot creates the box and starts its runner. After an error, b.box is nil unless the box could not be destroyed.
func (p *Pool) boot(ctx context.Context, b *pooledBox, spec Spec, preload []string) error {
	began := time.Now()
	box, err := p.driver.Create(ctx, spec)
	if err != nil {
		return err
	}
	b.box = box
	if b.runner, err = p.start(ctx, box, preload, &b.env.template); err != nil {
		destroyErr := box.Destroy(context.WithoutCancel(ctx))
		if destroyErr == nil {
			b.box = nil
		}
		return errors.Join(err, destroyErr)
	}
	b.bootTime = time.Since(began)
	if _, ok := b.box.(MemoryMeter); ok || p.opts.IdleMemoryMB > 0 {
		b.freshMB = memoryOf(ctx, b.box)
		b.idleMB = b.freshMB
	}
	return nil
}

// limit sets the box's outer limits, if the driver can.
func (b *pooledBox) limit(ctx context.Context, limits Limits) error {
	if limiter, ok := b.box.(Limiter); ok {
		return limiter.Limit(ctx, limits)
	}
	return nil
}

// watch discards a box that ends while it is idle. It returns when the box has ended, or destroy has given up.
func (p *Pool) watch(b *pooledBox) {
	select {
	case <-b.runner.ended():
	case <-b.gone:
	}
	p.update(func() {
		if b.state != ready && b.state != bound {
			return
		}
		if b.state == ready && b.runner.restored() { // no program can have ended it
			b.env.template.snapshot.fail(errors.New("a restored box died before its first program"))
		}
		p.sched.stats.Died++
		p.sched.discard(b)
	})
}

// destroy destroys a box and frees its slot. It retries until it succeeds or the pool ends, because a box that may
// still live keeps its slot. A box that is left when the pool ends is removed by the next sweep.
func (p *Pool) destroy(ctx context.Context, b *pooledBox) {
	defer close(b.gone)
	for {
		err := p.tryDestroy(ctx, b)
		if err == nil {
			break
		}
		p.log.ErrorContext(ctx, "box destruction failed", "box", b.id, "error", err)
		if clock.Sleep(ctx, destroyDelay) != nil && p.tryDestroy(ctx, b) != nil {
			return
		}
	}
	p.update(func() {
		delete(p.sched.boxes, b.slot)
		p.sched.trace("destroyed", b, "")
	})
}

func (p *Pool) tryDestroy(ctx context.Context, b *pooledBox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	destroy := b.box.Destroy
	if b.runner != nil {
		destroy = b.runner.close
	}
	if err := destroy(ctx); err != nil {
		return err
	}
	return errors.Join(p.callOnDestroy(b), p.removeWorkspace(b))
}

// callOnDestroy calls the functions registered with OnDestroy, once, if the box is being destroyed and is no
// longer in use. If it is still in use, AcquiredBox.release calls them later.
func (p *Pool) callOnDestroy(b *pooledBox) error {
	p.mu.Lock()
	var funcs []func() error
	if !b.inUse && b.state == destroying {
		funcs, b.onDestroy = b.onDestroy, nil
	}
	p.mu.Unlock()
	var errs []error
	for _, f := range funcs {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
