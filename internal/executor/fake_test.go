package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeHost is a driver of fake boxes, which are also their runners. It checks its caller: two boxes with the
// same name, a box that is used after its end or by two programs at once, and a missing workspace are
// violations that fail the test.
type fakeHost struct {
	bootTime time.Duration
	boxMB    float64 // what new boxes report as their memory; 0 for an error

	mu         sync.Mutex
	boxes      map[string]*fakeBox // by name
	created    int
	failCreate error // returned by Create unless nil
	failClose  int   // how many more times closing a box fails
	failLimit  error

	violationsMu sync.Mutex
	violations   []string
}

type fakeBox struct {
	host *fakeHost
	spec Spec
	end  chan struct{}

	mu     sync.Mutex
	gone   bool
	silent bool // has ended, although end is not closed
	busy   bool // a program is running
	limits Limits
	mb     float64
	report chan error    // delivers what awaitChecked returns; nil if it is known
	left   error         // what awaitChecked returned last
	files  chan struct{} // closed when the files of the last program are removed; nil if it has left none
	play   func(ctx context.Context, p Program) (Verdict, error)
}

func newFakeHost() *fakeHost {
	return &fakeHost{bootTime: 150 * time.Millisecond, boxes: map[string]*fakeBox{}}
}

func (h *fakeHost) violation(format string, args ...any) {
	h.violationsMu.Lock()
	defer h.violationsMu.Unlock()
	h.violations = append(h.violations, fmt.Sprintf(format, args...))
}

func (h *fakeHost) Create(ctx context.Context, spec Spec) (Box, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failCreate != nil {
		return nil, h.failCreate
	}
	if h.boxes[spec.Name] != nil {
		h.violation("two boxes named %s", spec.Name)
	}
	if entries, err := os.ReadDir(spec.Workspace); err != nil || len(entries) != 2 ||
		entries[0].Name() != "client" || entries[1].Name() != "servers" {
		h.violation("workspace of a new box: %v, %v, want mount points only", entries, err)
	}
	h.created++
	b := &fakeBox{host: h, spec: spec, mb: h.boxMB, end: make(chan struct{})}
	h.boxes[spec.Name] = b
	return b, nil
}

func (h *fakeHost) start(ctx context.Context, box Box, _ []string, _ *boxTemplate) (boxRunner, error) {
	select {
	case <-time.After(h.bootTime):
		return box.(*fakeBox), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *fakeBox) Exec(context.Context, []string) (Session, error) {
	return nil, errors.ErrUnsupported
}

func (b *fakeBox) Destroy(context.Context) error {
	b.host.mu.Lock()
	defer b.host.mu.Unlock()
	if b.host.failClose > 0 {
		b.host.failClose--
		return errors.New("cannot be destroyed")
	}
	if b.host.boxes[b.spec.Name] == b {
		delete(b.host.boxes, b.spec.Name)
	}
	b.die()
	return nil
}

func (b *fakeBox) die() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.gone {
		b.gone = true
		close(b.end)
	}
}

func (b *fakeBox) Limit(_ context.Context, limits Limits) error {
	b.host.mu.Lock()
	defer b.host.mu.Unlock()
	b.limits = limits
	return b.host.failLimit
}

func (b *fakeBox) Stats(context.Context) (Stats, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mb == 0 {
		return Stats{}, errors.New("unknown")
	}
	return Stats{MemoryMB: b.mb}, nil
}

func (b *fakeBox) UsesMoreThan(mb float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mb > mb
}

// set sets what the last program has left in the box.
func (b *fakeBox) set(files chan struct{}, mb float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files, b.mb = files, mb
}

func (b *fakeBox) awaitChecked(ctx context.Context) error {
	b.mu.Lock()
	report, left := b.report, b.left
	b.mu.Unlock()
	if report == nil {
		return left
	}
	select {
	case err := <-report:
		b.setReport(nil)
		b.mu.Lock()
		b.left = err
		b.mu.Unlock()
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// setReport makes the box wait for a report of what the last program has left; nil means that it is known.
func (b *fakeBox) setReport(report chan error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report = report
}

func (b *fakeBox) holdsFiles() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files != nil || b.report != nil || b.left != nil
}

func (b *fakeBox) awaitReady(ctx context.Context) error {
	b.mu.Lock()
	files := b.files
	b.files = nil
	b.mu.Unlock()
	if files == nil {
		return nil
	}
	select {
	case <-files:
		return nil
	case <-b.end:
		return errors.New("the runner has ended")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *fakeBox) alive() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.gone && !b.silent
}

func (b *fakeBox) ended() <-chan struct{}          { return b.end }
func (b *fakeBox) restored() bool                  { return false }
func (b *fakeBox) close(ctx context.Context) error { return b.Destroy(ctx) }

func (b *fakeBox) run(ctx context.Context, p Program, _ Hooks) (Verdict, error) {
	b.mu.Lock()
	if b.gone || b.busy {
		b.host.violation("program in a box that is gone (%v) or busy (%v)", b.gone, b.busy)
	}
	b.busy = true
	play := b.play
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.busy = false
		b.mu.Unlock()
	}()
	if play == nil {
		return Verdict{Status: Succeeded}, nil
	}
	return play(ctx, p)
}

// testPool is a pool on a fakeHost, running in a synctest bubble.
type testPool struct {
	*Pool
	t      *testing.T
	host   *fakeHost
	stop   context.CancelFunc
	done   chan error
	events []PoolEvent // guarded by Pool.mu
}

func runPool(t *testing.T, host *fakeHost, opts PoolOptions) *testPool {
	t.Helper()
	tp := newTestPool(t, host, opts)
	tp.run()
	return tp
}

// newTestPool returns a pool that does not run yet.
func newTestPool(t *testing.T, host *fakeHost, opts PoolOptions) *testPool {
	t.Helper()
	tp := &testPool{t: t, host: host, done: make(chan error, 1)}
	opts.Dir, opts.Owner, opts.DiskMB = t.TempDir(), "test", -1
	opts.Trace = func(e PoolEvent) { tp.events = append(tp.events, e) }
	p, err := NewPool(host, opts)
	if err != nil {
		t.Fatal(err)
	}
	p.start = host.start
	tp.Pool = p
	return tp
}

func (tp *testPool) run() {
	ctx, stop := context.WithCancel(tp.t.Context())
	tp.stop = stop
	go func() { tp.done <- tp.Run(ctx) }()
}

// finish stops the pool and checks that nothing is left and no rule was violated.
func (tp *testPool) finish() {
	tp.t.Helper()
	tp.stop()
	if err := <-tp.done; err != nil {
		tp.t.Errorf("Run = %v, want nil", err)
	}
	tp.host.mu.Lock()
	defer tp.host.mu.Unlock()
	if len(tp.host.boxes) > 0 {
		tp.t.Errorf("%d boxes are left, want none", len(tp.host.boxes))
	}
	if left, err := os.ReadDir(tp.opts.Dir); err != nil || len(left) > 0 {
		tp.t.Errorf("files left in the state directory = %v, %v, want none", left, err)
	}
	for _, v := range tp.host.violations {
		tp.t.Error(v)
	}
	if err := oneTenantEach(tp.events); err != nil {
		tp.t.Error(err)
	}
}

// oneTenantEach returns an error if a box served two tenants.
func oneTenantEach(events []PoolEvent) error {
	tenant := map[string]string{}
	for _, e := range events {
		if e.Step != "acquired" {
			continue
		}
		if before, ok := tenant[e.BoxID]; ok && before != e.Tenant {
			return fmt.Errorf("box %s served tenants %s and %s, want only one", e.BoxID, before, e.Tenant)
		}
		tenant[e.BoxID] = e.Tenant
	}
	return nil
}

func (tp *testPool) acquire(tenant string) *AcquiredBox {
	tp.t.Helper()
	box, err := tp.Acquire(tp.t.Context(), Key{Tenant: tenant}, Limits{}, nil)
	if err != nil {
		tp.t.Fatal(err)
	}
	return box
}

// pending is a call of Acquire that may not have returned.
type pending struct {
	mu    sync.Mutex
	box   *AcquiredBox
	err   error
	ended bool
}

// result returns what Acquire returned, if it has.
func (w *pending) result() (box *AcquiredBox, err error, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.box, w.err, w.ended
}

func (w *pending) done() bool {
	_, _, done := w.result()
	return done
}

// startAcquire calls Acquire in a goroutine, and waits until it has returned or blocks.
func (tp *testPool) startAcquire(ctx context.Context, tenant string, limits Limits) *pending {
	w := &pending{}
	go func() {
		// The environment with the tenant's name, or the first one.
		box, err := tp.Acquire(ctx, Key{Tenant: tenant, Environment: tenant}, limits, nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.box, w.err, w.ended = box, err, true
	}()
	synctest.Wait()
	return w
}

// tracedEvents returns the events of the given kinds, as text.
func (tp *testPool) tracedEvents(kinds ...string) string {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	var words []string
	for _, e := range tp.events {
		if slices.Contains(kinds, e.Step) {
			words = append(words, strings.TrimSpace(e.Step+" "+e.BoxID))
		}
	}
	return strings.Join(words, ", ")
}

// wait lets d pass, and then waits until all goroutines are blocked.
func wait(d time.Duration) {
	<-time.After(d) // in synctest's virtual time
	synctest.Wait()
}

// marker returns the path of a file by which a test recognizes a workspace.
func marker(workspace string) string { return filepath.Join(workspace, "marker") }
