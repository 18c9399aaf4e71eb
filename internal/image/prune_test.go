package image_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/image"
)

// TestPrune checks that Prune removes images that were not used for a long time. It removes no image that a process
// uses or used recently, and no other directory.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	long := time.Now().Add(-image.PruneAfter - time.Hour)
	roots := map[string]image.Root{}
	for _, name := range []string{"used", "unused", "fresh", "used again"} {
		root, err := image.Unpack(t.Context(),
			image.Options{Path: docker(t, archiveOf(t, entry{name: "a", text: name})), Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if roots[name] = root; name != "used" {
			root.Release()
		}
		if name != "fresh" {
			age(t, root.Dir, long)
		}
	}
	for _, other := range []string{"mine", "new-1", "new-2"} {
		if err := os.Mkdir(filepath.Join(dir, other), 0o700); err != nil {
			t.Fatal(err)
		}
		if other != "new-2" {
			age(t, filepath.Join(dir, other), long)
		}
	}
	again, err := image.Unpack(t.Context(),
		image.Options{Path: docker(t, archiveOf(t, entry{name: "a", text: "used again"})), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
	checkPrune := func(gone string, left ...string) {
		t.Helper()
		removed, err := image.Prune(dir, image.PruneAfter)
		if diff := cmp.Diff([]string{filepath.Base(roots[gone].Dir)}, removed); err != nil || diff != "" {
			t.Errorf("Prune() = %v (-want +got):\n%s", err, diff)
		}
		names := []string{"mine", "new-2"}
		for _, name := range left {
			names = append(names, filepath.Base(roots[name].Dir))
		}
		entries, err := os.ReadDir(dir)
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		slices.Sort(names)
		if diff := cmp.Diff(names, got); err != nil || diff != "" {
			t.Errorf("directories after Prune(), %v (-want +got):\n%s", err, diff)
		}
	}
	checkPrune("unused", "used", "fresh", "used again")
	roots["used"].Release()
	checkPrune("used", "fresh", "used again")
	if removed, err := image.Prune(filepath.Join(dir, "none"), 0); removed != nil || err != nil {
		t.Errorf("Prune() of a missing directory = %q, %v; want nothing removed", removed, err)
	}
}

func age(t *testing.T, path string, to time.Time) {
	t.Helper()
	if err := os.Chtimes(path, to, to); err != nil {
		t.Fatal(err)
	}
}

// TestPruneDuringUnpack checks that an unpacked image stays until its release, even if other processes prune all the
// time.
func TestPruneDuringUnpack(t *testing.T) {
	o := image.Options{Path: docker(t, archiveOf(t, entry{name: "a", text: "whole"})), Dir: t.TempDir()}
	done := make(chan struct{})
	var users, pruners sync.WaitGroup
	for range 2 {
		pruners.Go(func() {
			for {
				if _, err := image.Prune(o.Dir, 0); err != nil {
					t.Errorf("Prune() = %v, want nil", err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
		users.Go(func() {
			for range 50 {
				root, err := image.Unpack(t.Context(), o)
				if err != nil {
					t.Errorf("Unpack() = %v, want nil", err)
					return
				}
				if text, err := os.ReadFile(filepath.Join(root.Dir, "a")); err != nil || string(text) != "whole" {
					t.Errorf("unpacked file = %q, %v; want \"whole\"", text, err)
				}
				root.Release()
			}
		})
	}
	users.Wait()
	close(done)
	pruners.Wait()
}
