package s3_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

const opVariable = "CODEFLEET_TEST_KILL_OP"

// opPlan tells a process to run one operation on workspaces, and before which request to die.
type opPlan struct {
	S3     s3.Options
	Tenant string
	Op     string
	Nth    int64 // number of the request, from 1
	Reads  bool  // count reads too, not only writes
	Carry  bool  // let HEAD carry commits
}

// atOnce makes garbage collection remove everything that it may, without waiting.
var atOnce = maintenance.GCOptions{
	Retention: maintenance.Retention{Newest: 1, All: 1, Daily: -1}, Grace: 1, Deleted: 1,
}

// ops are operations on a tenant's workspace main, which is at generation 4. Fields may be nil.
var ops = map[string]struct {
	writes int // minimal number of writing requests
	do     func(ctx context.Context, s *state.Store, tenant string) error
	ready  func(ctx context.Context, s *state.Store, tenant string) error         // called before do
	makes  func(before map[string]string) map[string]string                       // files after do; nil: the same
	old    func(map[string]string) map[string]string                              // files before do; nil: generation(4)
	harm   func(ctx context.Context, bucket objects.Objects, tenant string) error // loses what do repairs
	// stored excludes the operation from the test with a HEAD that carries commits: the operation would write only
	// HEAD, or harm would remove the carried commits (see TestLostHead).
	stored bool
}{
	"fold": {writes: 7, do: func(ctx context.Context, s *state.Store, tenant string) error {
		return s.Repo().Fold(ctx, mainOf(tenant)) // three packs, three manifests, HEAD
	}},
	"mark":  {writes: 1, do: collect, stored: true},
	"sweep": {writes: 4, do: collect, ready: collect},
	"purge": {writes: 4, do: collect, ready: func(ctx context.Context, s *state.Store, tenant string) error {
		opts := atOnce
		opts.Deleted = -1
		for range 3 { // leaves only the HEAD of the deleted workspace
			if _, err := maintenance.CollectGarbage(ctx, s.Repo(), tenant, opts); err != nil {
				return err
			}
		}
		return nil
	}},
	"restore": {writes: 2, stored: true, do: func(ctx context.Context, s *state.Store, tenant string) error {
		_, err := history.Restore(ctx, s.Repo(), mainOf(tenant), 2, "")
		return err
	}, makes: func(map[string]string) map[string]string { return generation(2) }},
	"fork": {writes: 2, do: func(ctx context.Context, s *state.Store, tenant string) error {
		_, err := history.Fork(ctx, s.Repo(), mainOf(tenant), 2, "lab", "")
		if errors.Is(err, state.ErrConflict) { // it was done before the kill
			return nil
		}
		return err
	}},
	"rm": {writes: 2, stored: true, do: func(ctx context.Context, s *state.Store, tenant string) error {
		_, err := s.Edit(ctx, mainOf(tenant), state.EditOptions{Base: state.Newest}, removal("n"))
		return err
	}, makes: func(before map[string]string) map[string]string {
		after := maps.Clone(before)
		delete(after, "n")
		return after
	}},
	"edit": {writes: 4, ready: scatter, do: func(ctx context.Context, s *state.Store, tenant string) error {
		_, err := s.Edit(ctx, mainOf(tenant), state.EditOptions{Base: state.Newest}, file("last"))
		return err
	}, makes: func(before map[string]string) map[string]string {
		after := scattered(before)
		after["last"] = "last"
		return after
	}, old: scattered},
	"compact": {writes: 5, ready: func(ctx context.Context, s *state.Store, tenant string) error {
		if err := scatter(ctx, s, tenant); err != nil {
			return err
		}
		// main and its fork need only a small part of a pack
		if _, err := s.Edit(ctx, mainOf(tenant), state.EditOptions{Base: state.Newest}, removal("new-4")); err != nil {
			return err
		}
		if _, err := history.Fork(ctx, s.Repo(), mainOf(tenant), 0, "lab", ""); err != nil {
			return err
		}
		for range 3 {
			if err := collect(ctx, s, tenant); err != nil {
				return err
			}
		}
		return nil
	}, do: collect, makes: sparse, old: sparse},
	"repair": {writes: 3, stored: true, harm: func(ctx context.Context, bucket objects.Objects, tenant string) error {
		for info, err := range bucket.List(ctx, tenant+"/w/main/", "") {
			if err != nil {
				return err
			}
			if strings.HasSuffix(info.Key, "/HEAD") || strings.Contains(info.Key, "/m/000000000003-") {
				if err := bucket.Delete(ctx, info.Key); err != nil {
					return err
				}
			}
		}
		return nil
	}, do: func(ctx context.Context, s *state.Store, tenant string) error {
		_, err := maintenance.Repair(ctx, s.Repo(), mainOf(tenant), maintenance.RepairOptions{})
		return err
	}, makes: func(map[string]string) map[string]string {
		after := generation(4)
		maps.Copy(after, map[string]string{"new-2": statetest.Random(2, 4000), "recovered": "dir"})
		for _, lost := range generation(3) {
			id := sha256.Sum256([]byte(lost))
			after["recovered/"+hex.EncodeToString(id[:8])] = lost
		}
		return after
	}},
	"rm --all": {writes: 1, do: func(ctx context.Context, s *state.Store, tenant string) error {
		return history.Delete(ctx, s.Repo(), mainOf(tenant))
	}, makes: func(map[string]string) map[string]string { return map[string]string{} }},
}

func mainOf(tenant string) state.Ref { return state.Ref{Tenant: tenant, Workspace: "main"} }

func collect(ctx context.Context, s *state.Store, tenant string) error {
	_, err := maintenance.CollectGarbage(ctx, s.Repo(), tenant, atOnce)
	return err
}

// scatter commits small files one by one.
func scatter(ctx context.Context, s *state.Store, tenant string) error {
	for _, name := range []string{"a", "b", "c"} {
		if _, err := s.Edit(ctx, mainOf(tenant), state.EditOptions{Base: state.Newest}, file(name)); err != nil {
			return err
		}
	}
	return nil
}

// scattered returns the files after scatter.
func scattered(before map[string]string) map[string]string {
	after := maps.Clone(before)
	maps.Copy(after, map[string]string{"a": "a", "b": "b", "c": "c"})
	return after
}

// sparse returns the files of the operation compact.
func sparse(map[string]string) map[string]string {
	return map[string]string{"n": "4", "a": "a", "b": "b", "c": "c"}
}

func file(name string) iter.Seq2[state.Edit, error] {
	return func(yield func(state.Edit, error) bool) {
		yield(state.Edit{Path: name, Kind: state.File, Content: strings.NewReader(name)}, nil)
	}
}

func removal(path string) iter.Seq2[state.Edit, error] {
	return func(yield func(state.Edit, error) bool) { yield(state.Edit{Path: path}, nil) }
}

// generation returns the files of the n-th generation that setUp commits.
func generation(n int) map[string]string {
	return map[string]string{"n": strconv.Itoa(n), "new-" + strconv.Itoa(n): statetest.Random(byte(n), 4000)}
}

func setUp(t *testing.T, bucket objects.Objects, tenant string, opts state.Options) {
	t.Helper()
	for workspace, last := range map[string]int{"main": 4, "other": 2, "gone": 2} {
		w := statetest.NewWorker(t, bucket, state.Ref{Tenant: tenant, Workspace: workspace}, opts)
		for n := 1; n <= last; n++ {
			w.Checkout()
			w.Remove("new-" + strconv.Itoa(n-1))
			for path, content := range generation(n) {
				w.Write(path, content)
			}
			if workspace == "gone" {
				w.Write("own", statetest.Random(byte(100+n), 4000))
			}
			w.Commit(fmt.Sprint(workspace, "-", n))
		}
	}
	if err := history.Delete(t.Context(), state.New(bucket, state.Options{}).Repo(),
		state.Ref{Tenant: tenant, Workspace: "gone"}); err != nil {
		t.Fatal(err)
	}
}

// doOp is the main function of the process.
func doOp(plan opPlan) error {
	bucket, err := s3.Open(plan.S3)
	if err != nil {
		return err
	}
	killed := &nth{Objects: bucket, left: plan.Nth, reads: plan.Reads}
	store := state.New(killed, state.Options{
		Compaction: statetest.Eager, Carry: func() bool { return plan.Carry },
	})
	return ops[plan.Op].do(context.Background(), store, plan.Tenant)
}

// nth kills its process before the n-th request, and thus after the request before it was applied.
type nth struct {
	objects.Objects
	left  int64
	reads bool
}

func (n *nth) read() {
	if n.reads {
		n.count()
	}
}

func (n *nth) count() {
	if atomic.AddInt64(&n.left, -1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (n *nth) Get(ctx context.Context, key string, o objects.GetOptions) (objects.Object, error) {
	n.read()
	return n.Objects.Get(ctx, key, o)
}

func (n *nth) Put(ctx context.Context, key string, data []byte, sum objects.Digest) error {
	n.count()
	return n.Objects.Put(ctx, key, data, sum)
}

func (n *nth) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	n.count()
	return n.Objects.CompareAndSwap(ctx, key, old, data)
}

func (n *nth) List(ctx context.Context, prefix, after string) iter.Seq2[objects.ObjectInfo, error] {
	n.read()
	return n.Objects.List(ctx, prefix, after)
}

// Delete removes objects one by one, so that a kill can come between two of them.
func (n *nth) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		n.count()
		if err := n.Objects.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// TestKillOps kills each of ops before each writing request, or before each request with CODEFLEET_LONG_TESTS=1.
// No reachable content may be lost, others must see the old or the new version, and the operation and garbage
// collection must succeed when they are run again.
func TestKillOps(t *testing.T) {
	opts := gateway(t)
	bucket := open(t, opts)
	for op := range ops {
		for _, carry := range []bool{false, true} {
			if carry && ops[op].stored || !carry && op == "fold" {
				continue
			}
			t.Run(fmt.Sprintf("%s, carry %v", op, carry), func(t *testing.T) {
				t.Parallel()
				kills := 0
				for n := 1; killOp(t, opts, bucket, op, n, carry); n++ {
					kills++
				}
				t.Logf("%d kills", kills)
				if kills < ops[op].writes {
					t.Errorf("%d kills, want at least one before each of %d writes", kills, ops[op].writes)
				}
			})
		}
	}
}

func runOp(t *testing.T, plan opPlan) syscall.WaitStatus {
	t.Helper()
	plan.S3.Transport = nil // the process makes one
	state := runPlan(t, opVariable, plan)
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok {
		t.Fatalf("process ended with %v, want an exit status", state)
	}
	return status
}

// killOp kills an operation before its n-th request, and reports whether there was such a request.
func killOp(t *testing.T, opts s3.Options, bucket objects.Objects, op string, n int, carry bool) (killed bool) {
	t.Helper()
	tenant := fmt.Sprintf("%s-%v-%d", strings.NewReplacer(" ", "", "--", "-").Replace(op), carry, n)
	setUp(t, bucket, tenant, state.Options{Carry: func() bool { return carry }})
	store := state.New(bucket, state.Options{})
	old := generation(4)
	if o := ops[op]; o.old != nil {
		old = o.old(old)
	}
	makes := old
	if o := ops[op]; o.makes != nil {
		makes = o.makes(old)
	}
	if ready := ops[op].ready; ready != nil {
		if err := ready(t.Context(), store, tenant); err != nil {
			t.Fatal(err)
		}
	}
	if harm := ops[op].harm; harm != nil {
		if err := harm(t.Context(), bucket, tenant); err != nil {
			t.Fatal(err)
		}
	}
	status := runOp(t, opPlan{opts, tenant, op, int64(n), os.Getenv("CODEFLEET_LONG_TESTS") != "", carry})
	killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	if !killed && status.ExitStatus() != 0 {
		t.Fatalf("request %d: process ended with %v, want it killed or successful", n, status)
	}
	checkAll(t, bucket, tenant, n)
	harmed := ops[op].harm != nil
	now, err := tryFilesOf(t, bucket, mainOf(tenant))
	switch {
	case harmed && errors.Is(err, objects.ErrCorrupt): // HEAD is still lost
	case err != nil:
		t.Errorf("killed at request %d: check out: %v", n, err)
	case !maps.Equal(now, makes) && (harmed || !maps.Equal(now, old)):
		t.Errorf("killed at request %d: files are neither the old nor the new ones: %v", n, cmp.Diff(makes, now))
	}
	store = state.New(bucket, state.Options{})
	if err := ops[op].do(t.Context(), store, tenant); err != nil {
		t.Errorf("killed at request %d: doing it again = %v, want nil", n, err)
	}
	for range 3 {
		if err := collect(t.Context(), store, tenant); err != nil {
			t.Errorf("killed at request %d: CollectGarbage() afterwards = %v, want nil", n, err)
		}
	}
	checkAll(t, bucket, tenant, n)
	if now := filesOf(t, bucket, mainOf(tenant)); !maps.Equal(now, makes) {
		t.Errorf("killed at request %d: files after doing it again (-want +got):\n%s", n, cmp.Diff(makes, now))
	}
	if lab := filesOf(t, bucket, state.Ref{Tenant: tenant, Workspace: "lab"}); op == "fork" &&
		!maps.Equal(lab, generation(2)) {
		t.Errorf("killed at request %d: the fork holds %v, want the files of generation 2", n, lab)
	}
	return killed
}

// checkAll checks that all content of all workspaces can be read.
func checkAll(t *testing.T, bucket objects.Objects, tenant string, n int) {
	t.Helper()
	store := state.New(bucket, state.Options{})
	list, err := history.Workspaces(t.Context(), store.Repo(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		report, err := maintenance.Check(t.Context(), store.Repo(), state.Ref{Tenant: tenant, Workspace: w.Name},
			maintenance.CheckOptions{ReadData: true})
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("killed at request %d: Check(%s) = %v, %v, want no problems", n, w.Name, report.Problems, err)
		}
	}
}

func filesOf(t *testing.T, bucket objects.Objects, ref state.Ref) map[string]string {
	t.Helper()
	files, err := tryFilesOf(t, bucket, ref)
	if err != nil {
		t.Fatalf("check out %s: %v", ref, err)
	}
	return files
}

func tryFilesOf(t *testing.T, bucket objects.Objects, ref state.Ref) (map[string]string, error) {
	t.Helper()
	w := statetest.NewWorker(t, bucket, ref, state.Options{})
	if _, err := w.Store.Checkout(t.Context(), w.Tree, nil); err != nil {
		return nil, err
	}
	return w.Files(), nil
}
