package repo

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// carrying returns a HEAD that carries a pack.
func carrying(ref format.Ref) format.Head {
	pack := []byte("the pack of " + ref.Workspace)
	return format.Head{
		Generation: 1, Commit: "x", Born: 1, Manifest: &format.ManifestRef{Name: "000000000001-0123456789abcdef"},
		Carried: []format.Carried{{Pack: objects.Sum(pack), Data: pack}},
	}
}

// TestEvictedCarriedObjects checks that objects which HEAD carries, and which were evicted from memory, are read from
// HEAD again.
func TestEvictedCarriedObjects(t *testing.T) {
	bucket := mem.New()
	writer := New(bucket, Options{Log: slog.New(slog.DiscardHandler)})
	refs := []format.Ref{{Tenant: "acme", Workspace: "one"}, {Tenant: "acme", Workspace: "two"}}
	keys := map[format.Ref]string{}
	data := map[format.Ref][]byte{}
	for _, ref := range refs {
		h := carrying(ref)
		if _, err := writer.SwapHead(t.Context(), ref, "", &h); err != nil {
			t.Fatal(err)
		}
		keys[ref], data[ref] = h.Carried[0].Key(ref), h.Carried[0].Data
	}
	r := New(bucket, Options{Log: slog.New(slog.DiscardHandler)})
	r.carrier.limit = 1
	for _, ref := range refs {
		if _, _, err := r.ReadHead(t.Context(), ref, ""); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for _, ref := range refs {
			obj, err := r.Bucket.Get(t.Context(), keys[ref], objects.GetOptions{Offset: 4, Length: 4})
			if err != nil || string(obj.Data) != string(data[ref][4:8]) {
				t.Errorf("Get(%s) = %q, %v, want %q", keys[ref], obj.Data, err, data[ref][4:8])
			}
		}
	}
	if _, err := r.Bucket.Get(t.Context(), format.PackKey("acme", objects.Digest{}), objects.GetOptions{}); !errors.Is(
		err, objects.ErrNotFound) {
		t.Errorf("Get() of an object that no HEAD carries = %v, want %v", err, objects.ErrNotFound)
	}
}

// TestFolderKeepsNewCommit checks that the folder does not forget a workspace to which another goroutine commits after
// the folder has seen that its HEAD carries nothing, and that it folds one whose objects were evicted from memory.
func TestFolderKeepsNewCommit(t *testing.T) {
	r := New(mem.New(), Options{Log: slog.New(slog.DiscardHandler), Carry: func() bool { return true }})
	r.carrier.limit = 1
	f := &folder{repo: r, due: map[format.Ref]fold{}}
	commit := func(ref format.Ref) {
		t.Helper()
		h := carrying(ref)
		if _, err := r.SwapHead(t.Context(), ref, "", &h); err != nil {
			t.Fatal(err)
		}
		f.note(ref, h.Carried)
		f.forget(ref)
	}
	one, two := format.Ref{Tenant: "acme", Workspace: "one"}, format.Ref{Tenant: "acme", Workspace: "two"}
	want := func(refs ...format.Ref) {
		t.Helper()
		got := slices.SortedFunc(maps.Keys(f.due), func(a, b format.Ref) int {
			return strings.Compare(a.Workspace, b.Workspace)
		})
		if diff := cmp.Diff(refs, got); diff != "" {
			t.Errorf("workspaces to fold (-want +got):\n%s", diff)
		}
	}
	commit(one)
	want(one)
	commit(two) // evicts what the other HEAD carries
	f.forget(one)
	want(one, two)
	f.step(t.Context())
	f.step(t.Context())
	if _, ok := f.due[one]; ok { // the fold of one may have evicted two, which is then folded, too
		t.Error("the folder has not forgotten a workspace that it has folded")
	}
	if h, _, err := r.ReadHead(t.Context(), one, ""); err != nil || len(h.Carried) != 0 {
		t.Errorf("HEAD carries %d objects, %v, want none", len(h.Carried), err)
	}
}

// TestFoldOfDamagedHead checks that the folder tries ever less often to fold an evicted workspace whose HEAD cannot be
// read, and that it folds the workspace when the HEAD can be read again.
func TestFoldOfDamagedHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var damaged atomic.Bool
		var reads atomic.Int64
		r := New(headHook{mem.New(), func() error {
			reads.Add(1)
			if damaged.Load() {
				return errors.New("damaged")
			}
			return nil
		}}, Options{Log: slog.New(slog.DiscardHandler), Carry: func() bool { return true }})
		ref := format.Ref{Tenant: "acme", Workspace: "one"}
		h := carrying(ref)
		if _, err := r.SwapHead(t.Context(), ref, "", &h); err != nil {
			t.Fatal(err)
		}
		r.carrier.drop(ref)
		r.carrier.evicted[ref] = true
		damaged.Store(true)
		stop := r.StartFolding()
		r.folder.note(ref, h.Carried)
		<-time.After(10*time.Minute + foldEvery/2)
		synctest.Wait()
		// After 1, 2, 4, 8, 16 and 32 seconds, and then every minute.
		if got, want := reads.Load(), int64(6+9); got != want {
			t.Errorf("the folder tried %d times in ten minutes, want %d", got, want)
		}
		damaged.Store(false)
		<-time.After(foldMaxDelay)
		synctest.Wait()
		stop(t.Context())
		if h, _, err := r.ReadHead(t.Context(), ref, ""); err != nil || len(h.Carried) != 0 {
			t.Errorf("HEAD carries %d objects, %v, want none", len(h.Carried), err)
		}
	})
}

// headHook is an object store that calls a function before each read of a HEAD, and returns its error.
type headHook struct {
	objects.Objects
	beforeRead func() error
}

func (h headHook) Get(ctx context.Context, key string, o objects.GetOptions) (objects.Object, error) {
	if strings.HasSuffix(key, "/HEAD") {
		if err := h.beforeRead(); err != nil {
			return objects.Object{}, err
		}
	}
	return h.Objects.Get(ctx, key, o)
}
