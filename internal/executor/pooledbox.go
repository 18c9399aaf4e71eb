package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

type boxState int

const (
	warming boxState = iota
	ready            // and unbound
	bound            // idle
	acquired
	destroying
)

// pooledBox is a box and what the pool knows of it. Its mutable fields belong to
// Pool.mu; box, runner, dir and disk are set before it is ready.
type pooledBox struct {
	id      string // never used again
	env     *environment
	slot    int // names it to the driver; used again when it is gone
	state   boxState
	key     Key       // of every lease it ever had
	used    time.Time // begun, made, leased or given back
	cold    bool      // the lease that has it waited for it to be made
	dir     string    // host directory of its workspace
	hasDisk bool      // which is a disk of its own
	runner  boxRunner
	took    time.Duration // to make, without its workspace

	memoryMB int // leased
	box      Box

	onDestroy []func() error
	inUse     bool // from assignment until Release or Discard, even if the pool discards it meanwhile
}

// workspaceMode are the permissions of a box's workspace when a program begins.
const workspaceMode = 0o700

// Times that the pool allows; a machine may be busy.
const (
	makeTimeout    = 60 * time.Second
	destroyTimeout = 60 * time.Second
	destroyPause   = time.Second // between attempts
)

// begin takes a slot for a new box; p.mu is held.
func (p *Pool) begin(e *environment) *pooledBox {
	slot := 0
	for p.boxes[slot] != nil {
		slot++
	}
	p.made++
	b := &pooledBox{env: e, slot: slot, used: time.Now(), id: p.run + "-" + strconv.Itoa(p.made)}
	p.boxes[slot] = b
	return b
}

// make makes a box ready, and then watches over it until its runner ends.
func (p *Pool) make(ctx context.Context, b *pooledBox, work *sync.WaitGroup) {
	err := p.build(ctx, b)
	if err != nil {
		err = errors.Join(p.onFullDisk(err), p.removeWorkspace(b))
	}
	p.mu.Lock()
	p.madeOrNot(ctx, b, err)
	p.schedule()
	p.mu.Unlock()
	p.wakeRun()
	if err == nil {
		work.Go(func() { p.watch(b) })
	}
}

// madeOrNot records the outcome of make; p.mu is held.
func (p *Pool) madeOrNot(ctx context.Context, b *pooledBox, err error) {
	if err != nil {
		delete(p.boxes, b.slot)
		if ctx.Err() != nil {
			return
		}
		if _, ok := errors.AsType[*unprepared](err); !ok {
			p.doubt = p.stats.Created == 0 && !p.tried
			p.tried = true
		} else if b.env.Required {
			p.unable = err
		}
		p.stats.CreateErrors++
		b.env.failures.add(err, time.Now())
		p.log.WarnContext(ctx, "box could not be made", "box", b.id, "environment", b.env.Name, "attempts", b.env.failures.attempts, "reason", ReasonOf(err), "error", err)
		return
	}
	p.stats.Created++
	b.env.last = made{b.took, b.runner.restored()}
	if b.env.last.restored {
		p.stats.Restored++
	}
	b.env.failures = failures{}
	b.state, b.used = ready, time.Now()
	p.trace("created", b, "")
	if p.closed != nil {
		p.discard(b)
		return
	}
	p.pace.since = time.Time{}
	p.announce()
}

// announce closes the ready channel when it is time; p.mu is held.
func (p *Pool) announce() {
	select {
	case <-p.ready:
	default:
		if first := p.envs[0]; p.countOf(first, ready) >= min(1, first.MinReady) {
			close(p.ready)
			p.pace.busy = time.Now() // whoever waited for this has a task now
		}
	}
}

// build makes the workspace, the box and its runner. After an error, which is no
// failure of a program, only the workspace is left.
func (p *Pool) build(ctx context.Context, b *pooledBox) error {
	root, err := p.prepared(ctx, b.env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	if err := p.makeWorkspace(ctx, b); err != nil {
		return err
	}
	spec := Spec{
		Name: "w" + strconv.Itoa(b.slot), Owner: p.opts.Owner, Workspace: b.dir, Image: root.Image,
		Mounts: slices.Concat(p.opts.Mounts, root.Mounts), Env: runnerEnv(),
	}
	err = p.boot(ctx, b, spec, root.Preload)
	if _, again := errors.AsType[*snapshotError](err); again { // there is none any more
		err = p.boot(ctx, b, spec, root.Preload)
	}
	return err
}

// boot makes the box and its runner. After an error there is neither.
func (p *Pool) boot(ctx context.Context, b *pooledBox, spec Spec, preload []string) (err error) {
	began := time.Now()
	if b.box, err = p.driver.Create(ctx, spec); err != nil {
		return err
	}
	if b.runner, err = p.start(ctx, b.box, preload, &b.env.template); err != nil {
		return errors.Join(err, b.box.Destroy(context.WithoutCancel(ctx)))
	}
	b.took = time.Since(began)
	return nil
}

// watch burns a box that ends while nobody uses it.
func (p *Pool) watch(b *pooledBox) {
	<-b.runner.ended()
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.state == ready || b.state == bound {
		if b.state == ready && b.runner.restored() { // so it was no program's doing
			b.env.template.snapshot.failed(errors.New("a restored box died before its first program"))
		}
		p.stats.Died++
		p.discard(b)
		p.schedule()
	}
}

// destroy does not give up while the pool runs: a box that may still live keeps its
// slot. What cannot be destroyed at the end is left for the next sweep.
func (p *Pool) destroy(ctx context.Context, b *pooledBox) {
	for {
		err := p.destroyOnce(ctx, b)
		if err == nil {
			break
		}
		p.log.ErrorContext(ctx, "box could not be destroyed", "box", b.id, "error", err)
		select {
		case <-time.After(destroyPause):
		case <-ctx.Done():
			if p.destroyOnce(ctx, b) != nil {
				return
			}
		}
	}
	p.mu.Lock()
	delete(p.boxes, b.slot)
	p.trace("destroyed", b, "")
	p.schedule()
	p.mu.Unlock()
	p.wakeRun()
}

func (p *Pool) destroyOnce(ctx context.Context, b *pooledBox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	if err := b.runner.close(ctx); err != nil {
		return err
	}
	return errors.Join(p.callOnDestroy(b), p.removeWorkspace(b))
}

// callOnDestroy runs the functions registered with OnDestroy, once, when the box is being destroyed and is
// no longer in use. A box in use is left to its Release.
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

func (b *pooledBox) limit(ctx context.Context, limits Limits) error {
	if limiter, ok := b.box.(Limiter); ok {
		return limiter.Limit(ctx, limits)
	}
	return nil
}

// workspaces is where the pool keeps the workspaces of its boxes.
func (p *Pool) workspaces() string { return filepath.Join(p.opts.Dir, p.opts.Owner, "ws") }

// checkpoints is where the pool keeps what its boxes are restored from.
func (o PoolOptions) snapshots() string { return filepath.Join(o.Dir, o.Owner, "saved") }

// sweepFiles removes workspaces and checkpoints of a dead predecessor, and makes room for ours.
func (p *Pool) sweepFiles() error {
	for dir, mode := range map[string]os.FileMode{p.workspaces(): 0o711, p.opts.snapshots(): 0o700} {
		if err := hostdir.Remove(dir); err != nil {
			return fmt.Errorf("sweep what boxes left: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
			return err
		}
		if err := os.Mkdir(dir, mode); err != nil {
			return err
		}
	}
	return nil
}

// cleanUp removes what the pool itself made, once every box is gone.
func (p *Pool) cleanUp(ctx context.Context) error {
	p.mu.Lock()
	left := len(p.boxes)
	p.mu.Unlock()
	if left > 0 {
		return fmt.Errorf("stop pool: %d boxes could not be destroyed", left)
	}
	if err := hostdir.Remove(filepath.Dir(p.workspaces())); err != nil {
		return fmt.Errorf("stop pool: %w", err)
	}
	p.log.DebugContext(ctx, "pool stopped")
	return nil
}

// makeWorkspace makes the box's empty workspace: a disk of its own where that works,
// else a directory. It belongs to the user that programs run as.
func (p *Pool) makeWorkspace(ctx context.Context, b *pooledBox) error {
	home := filepath.Join(p.workspaces(), b.id)
	dir := filepath.Join(home, "workspace")
	uid := DefaultGuest().UID
	if err := os.Mkdir(home, 0o711); err != nil {
		return fmt.Errorf("make workspace: %w", err)
	}
	b.dir = dir
	if use := p.diskState(); use != disksOff {
		err := hostdir.NewDisk(ctx, filepath.Join(home, "disk"), dir, p.opts.DiskMB, uid, uid)
		if err == nil {
			b.hasDisk = true
			p.setDiskMode(disksOn)
			return os.Chmod(dir, workspaceMode)
		}
		if use == disksOn || ctx.Err() != nil {
			return err
		}
		p.log.WarnContext(ctx, "boxes have no disks of their own, workspaces are watched instead", "error", err)
		if err := hostdir.Remove(home); err != nil {
			return err
		}
		if err := os.Mkdir(home, 0o711); err != nil {
			return fmt.Errorf("make workspace: %w", err)
		}
		p.setDiskMode(disksOff)
	}
	if err := os.Mkdir(dir, workspaceMode); err != nil {
		return fmt.Errorf("make workspace: %w", err)
	}
	if os.Geteuid() == 0 {
		return os.Chown(dir, uid, uid)
	}
	return nil
}

func (p *Pool) removeWorkspace(b *pooledBox) error {
	return hostdir.Remove(filepath.Join(p.workspaces(), b.id))
}

// diskMode says whether boxes get a disk of their own. The first one shows whether that works.
type diskMode int

const (
	disksUntried diskMode = iota
	disksOn
	disksOff
)

func (p *Pool) diskState() diskMode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.disks
}

func (p *Pool) setDiskMode(mode diskMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.disks == disksUntried {
		p.disks = mode
	}
}
