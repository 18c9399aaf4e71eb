package state_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

const marker = "MARKERinTheClear"

// markedHistory makes a workspace with the marker in everything that comes from a tenant: small and large files, names,
// symbolic links, results, messages, task ids, pins, and older versions.
func markedHistory(t *testing.T, bucket *mem.Objects, opts state.Options) *statetest.Worker {
	t.Helper()
	w := statetest.NewWorker(t, bucket, ref, opts)
	large := strings.Repeat(marker+statetest.Random(7, 1000), 6000)
	for i := range 20 {
		w.Checkout()
		w.Write("dir-"+marker+"/file-"+marker, marker+strconv.Itoa(i))
		if i == 0 {
			w.Write("large", large)
			w.Write("state.json", `{"`+marker+`": 1}`)
			if err := os.Symlink(marker, filepath.Join(w.Dir, "link")); err != nil {
				t.Fatal(err)
			}
		}
		result, err := json.Marshal(strings.Repeat(marker, 1+i*200))
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Store.Commit(t.Context(), w.Tree,
			state.CommitOptions{TaskID: fmt.Sprint(marker, i), Attempt: 1, Message: marker, Result: result})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := history.Pin(t.Context(), w.Store.Repo(), ref, strings.ToLower(marker), 3); err != nil {
		t.Fatal(err)
	}
	if err := w.Store.Retain(t.Context(), ref, 2, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := history.Fork(t.Context(), w.Store.Repo(), ref, 5, "fork", marker); err != nil {
		t.Fatal(err)
	}
	return w
}

// readable returns the keys of objects in which a reader of the bucket finds the marker, or the SHA-256 of a file.
func readable(t *testing.T, bucket *mem.Objects) []string {
	t.Helper()
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	id := sha256.Sum256([]byte(marker + "19"))
	needles := [][]byte{[]byte(marker), []byte(strings.ToLower(marker)), id[:], []byte(hex.EncodeToString(id[:]))}
	var found []string
	for _, key := range statetest.Keys(t, bucket) {
		obj, err := bucket.Get(t.Context(), key, objects.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		texts := [][]byte{obj.Data, []byte(key)}
		if plain, err := dec.DecodeAll(obj.Data, nil); err == nil {
			texts = append(texts, plain)
		}
		for _, text := range texts {
			if slices.ContainsFunc(needles, func(n []byte) bool { return bytes.Contains(text, n) }) {
				found = append(found, key)
				break
			}
		}
	}
	return found
}

// TestNothingReadable checks that an encrypted bucket reveals no contents, names or digests of contents. It finds them
// in the packs, manifests, HEAD and pins of an unencrypted bucket, which proves that the search works.
func TestNothingReadable(t *testing.T) {
	bucket := mem.New()
	markedHistory(t, bucket, statetest.Encrypted)
	if found := readable(t, bucket); len(found) > 0 {
		t.Errorf("readable in the bucket: %v, want nothing", found)
	}
	plain := mem.New()
	markedHistory(t, plain, state.Options{})
	kinds := map[string]bool{}
	for _, key := range readable(t, plain) {
		parts := strings.Split(key, "/")
		kinds[parts[min(3, len(parts)-1)]] = true
		if parts[1] == "p" {
			kinds["p"] = true
		}
	}
	for _, kind := range []string{"p", "m", "HEAD", "pins"} {
		if !kinds[kind] {
			t.Errorf("the search finds nothing in %s of an unencrypted bucket: %v", kind, kinds)
		}
	}
}

// TestEncryptedOperations checks that history, range reads, forks, artifacts, checks and garbage collection work with
// encryption.
func TestEncryptedOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := markedHistory(t, bucket, statetest.Encrypted)
		store := state.New(bucket, statetest.Encrypted)
		log, err := history.Log(t.Context(), store.Repo(), ref, 0)
		if err != nil || len(log) != 20 || log[0].Message != marker || log[0].TaskID != marker+"19" {
			t.Fatalf("Log() = %d commits, %v, want 20 with the marker", len(log), err)
		}
		done, err := store.Applied(t.Context(), ref, marker+"7", time.Time{})
		if err != nil || done == nil || !bytes.Contains(done.Result, []byte(strings.Repeat(marker, 1+7*200))) {
			t.Errorf("Applied() = %v, %v, want the result", done != nil, err)
		}
		f, info, err := history.Open(t.Context(), store.Repo(), ref, 0, "large")
		if err != nil || len(info.Parts) < 2 {
			t.Fatalf("Open(large) = %+v, %v, want several parts", info, err)
		}
		part := make([]byte, 100)
		if _, err := f.Seek(5<<20, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Read(part); err != nil ||
			string(part) != strings.Repeat(marker+statetest.Random(7, 1000), 6000)[5<<20:][:100] {
			t.Errorf("range of a large file = %q, %v, want its content", part, err)
		}
		list, err := store.List(t.Context(), ref, 0, "dir-"+marker)
		if id := sha256.Sum256([]byte(marker + "19")); err != nil || len(list) != 1 ||
			list[0].ETag != hex.EncodeToString(id[:]) {
			t.Errorf("List() = %+v, %v, want the SHA-256 of the content as ETag", list, err)
		}
		if _, _, err := history.OpenRetained(t.Context(), store.Repo(), ref, 2,
			"dir-"+marker+"/file-"+marker); err != nil {
			t.Errorf("OpenRetained() = %v, want nil", err)
		}
		if _, err := history.Restore(t.Context(), store.Repo(), ref, 4, ""); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			statetest.Advance(t, 25*time.Hour)
			if _, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, statetest.Encrypted).Repo(), "acme",
				statetest.Strict); err != nil {
				t.Fatal(err)
			}
		}
		report, err := maintenance.Check(t.Context(), state.New(bucket, statetest.Encrypted).Repo(), ref,
			maintenance.CheckOptions{ReadData: true})
		if err != nil || len(report.Problems) > 0 || report.Read == 0 {
			t.Errorf("Check() = %+v, %v, want packs read and no problems", report, err)
		}
		fresh := statetest.NewWorker(t, bucket, ref, statetest.Encrypted)
		fresh.Checkout()
		if got := fresh.Files()["dir-"+marker+"/file-"+marker]; got != marker+"3" {
			t.Errorf("the restored file is %q, want %q", got, marker+"3")
		}
		w.Checkout()
		w.Want(fresh.Files())
		if err := bucket.Violations(); err != nil {
			t.Error(err)
		}
	})
}

// TestWithoutTheKey checks that without the right key every operation fails with an error that names the setting, and
// that none writes anything.
func TestWithoutTheKey(t *testing.T) {
	bucket := mem.New()
	markedHistory(t, bucket, statetest.Encrypted)
	for name, secrets := range map[string]func(string) state.Secrets{
		"none":    nil,
		"another": statetest.Secrets("another secret"),
	} {
		store := state.New(bucket, state.Options{Secrets: secrets})
		tree, err := store.Tree(t.TempDir(), ref)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		bucket.Calls()
		for what, do := range map[string]func() error{
			"checkout": func() error { _, err := store.Checkout(t.Context(), tree, nil); return err },
			"log":      func() error { _, err := history.Log(t.Context(), store.Repo(), ref, 0); return err },
			"edit": func() error {
				_, err := store.Edit(t.Context(), ref, state.EditOptions{Base: state.Newest},
					func(yield func(state.Edit, error) bool) {
						yield(state.Edit{Path: "x", Kind: state.File, Content: strings.NewReader("x")}, nil)
					})
				return err
			},
			"pin":    func() error { return history.Pin(t.Context(), store.Repo(), ref, "mine", 0) },
			"unpin":  func() error { return history.Unpin(t.Context(), store.Repo(), ref, "mine") },
			"delete": func() error { return history.Delete(t.Context(), store.Repo(), ref) },
			"fork": func() error {
				_, err := history.Fork(t.Context(), store.Repo(), ref, 0, "fork",
					"")
				return err
			},
			"check": func() error {
				_, err := maintenance.Check(t.Context(), store.Repo(), ref, maintenance.CheckOptions{})
				return err
			},
			"repair": func() error {
				_, err := maintenance.Repair(t.Context(), store.Repo(), ref, maintenance.RepairOptions{})
				return err
			},
			"collect": func() error {
				_, err := maintenance.CollectGarbage(t.Context(), store.Repo(), "acme", statetest.Strict)
				return err
			},
			"applied": func() error { _, err := store.Applied(t.Context(), ref, "x", time.Time{}); return err },
		} {
			err := do()
			if !errors.Is(err, state.ErrKey) || !strings.Contains(err.Error(), "workspaces.encryption") ||
				!strings.Contains(err.Error(), "tenants.acme.encryption") {
				t.Errorf("%s with %s key = %v, want %v with the settings", what, name, err, state.ErrKey)
			}
		}
		for _, call := range bucket.Calls() {
			if call.Op != "get" && call.Op != "list" {
				t.Errorf("with %s key: sent the request %+v, want reads only", name, call)
			}
		}
	}
}

// TestKeysOfTenantsDiffer checks that tenants with the same secret have different keys.
func TestKeysOfTenantsDiffer(t *testing.T) {
	bucket := mem.New()
	w := markedHistory(t, bucket, statetest.Encrypted)
	for _, key := range statetest.Keys(t, bucket) { // copy all objects of acme to another tenant
		obj, err := bucket.Get(t.Context(), key, objects.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if key := "other" + strings.TrimPrefix(key, "acme"); strings.HasSuffix(key, "/HEAD") {
			_, err = bucket.CompareAndSwap(t.Context(), key, "", obj.Data)
		} else {
			err = bucket.Put(t.Context(), key, obj.Data, objects.Sum(obj.Data))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := history.Log(t.Context(), w.Store.Repo(), state.Ref{Tenant: "other", Workspace: "main"},
		0); !errors.Is(err, state.ErrKey) {
		t.Errorf("Log() of objects that another tenant encrypted = %v, want %v", err, state.ErrKey)
	}
}

// TestFlippedBytes checks that a change of any byte of an encrypted object is detected.
func TestFlippedBytes(t *testing.T) {
	bucket := mem.New()
	w := statetest.NewWorker(t, bucket, ref, statetest.Encrypted)
	w.Checkout()
	w.Write("a", statetest.Random(1, 300))
	w.Write("b", strings.Repeat("b", 300))
	w.Commit("task-1")
	if err := history.Pin(t.Context(), w.Store.Repo(), ref, "one", 1); err != nil {
		t.Fatal(err)
	}
	for _, key := range statetest.Keys(t, bucket) {
		obj, err := bucket.Get(t.Context(), key, objects.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range obj.Data {
			bucket.Damage(key, statetest.Flipped(i))
			report, err := maintenance.Check(t.Context(), state.New(bucket, statetest.Encrypted).Repo(), ref,
				maintenance.CheckOptions{ReadData: true})
			if err == nil && len(report.Problems) == 0 {
				t.Errorf("Check() with byte %d of %s changed = %+v, want a problem", i, key, report)
			}
			bucket.Damage(key, statetest.Flipped(i))
		}
	}
	if report, err := maintenance.Check(t.Context(), state.New(bucket, statetest.Encrypted).Repo(), ref,
		maintenance.CheckOptions{ReadData: true}); err != nil || len(report.Problems) > 0 {
		t.Errorf("Check() without damage = %+v, %v, want no problems", report, err)
	}
}

// TestRotation checks that an unencrypted workspace, and one with an old key, can be used with a new key, and that
// garbage collection rewrites the newest version until it needs only the new key.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		markedHistory(t, bucket, state.Options{})
		var want map[string]string
		for i, opts := range []state.Options{
			{Secrets: statetest.Secrets("first")},
			{Secrets: statetest.Secrets("second", "first")},
			// unencrypted again
			{Secrets: func(string) state.Secrets { return state.Secrets{Old: [][]byte{[]byte("second")}} }},
		} {
			w := statetest.NewWorker(t, bucket, ref, opts)
			w.Checkout()
			w.Write("new", strconv.Itoa(i))
			w.Commit(fmt.Sprint("new-", i))
			want = w.Files()
			if err := history.Unpin(t.Context(), w.Store.Repo(), ref, strings.ToLower(marker)); err != nil {
				t.Fatal(err)
			}
			for range 9 {
				statetest.Advance(t, 25*time.Hour)
				if _, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, opts).Repo(), "acme",
					statetest.Strict); err != nil {
					t.Fatal(err)
				}
			}
			if found := readable(t, bucket); (len(found) > 0) != (i == 2) {
				t.Errorf("readable in the bucket after step %d: %v, want something only if nothing is encrypted",
					i, found)
			}
			without := opts.Secrets("acme")
			without.Old = nil // the old key is no longer needed
			fresh := statetest.NewWorker(t, bucket, ref,
				state.Options{Secrets: func(string) state.Secrets { return without }})
			fresh.Checkout()
			fresh.Want(want)
			if _, err := history.Log(t.Context(), fresh.Store.Repo(), ref, 0); err != nil {
				t.Errorf("Log() after step %d without the old key = %v, want nil", i, err)
			}
		}
	})
}

// TestRepairEncrypted checks that Repair finds content through the indexes of encrypted packs.
func TestRepairEncrypted(t *testing.T) {
	bucket := mem.New()
	w := statetest.NewWorker(t, bucket, ref, statetest.Encrypted)
	for i := range 3 {
		w.Checkout()
		w.Write(fmt.Sprint("f", i), statetest.Random(byte(i), 2000))
		w.Commit(fmt.Sprint("task-", i))
	}
	for _, key := range statetest.Keys(t, bucket) {
		if strings.Contains(key, "/m/000000000002-") || strings.HasSuffix(key, "main/HEAD") {
			bucket.Damage(key, statetest.Gone)
		}
	}
	out, err := maintenance.Repair(t.Context(), state.New(bucket, statetest.Encrypted).Repo(), ref,
		maintenance.RepairOptions{ReadData: true})
	if err != nil {
		t.Fatal(err)
	}
	id := sha256.Sum256([]byte(statetest.Random(1, 2000)))
	if want := []string{"recovered/" + hex.EncodeToString(id[:8])}; cmp.Diff(want, out.Recovered) != "" {
		t.Errorf("Repair() = %+v, want recovered %v", out, want)
	}
	fresh := statetest.NewWorker(t, bucket, ref, statetest.Encrypted)
	fresh.Checkout()
	fresh.Want(map[string]string{
		"f0": statetest.Random(0, 2000), "f2": statetest.Random(2, 2000), "recovered": "dir",
		out.Recovered[0]: statetest.Random(1, 2000),
	})
}
