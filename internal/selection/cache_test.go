package selection

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/filelock"
)

func openCache(t *testing.T, path string) *FileCache {
	t.Helper()
	c, err := OpenFileCache(path, 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func keyOf(i int) [sha256.Size]byte { return [sha256.Size]byte{byte(i)} }

// While another process holds the file's lock, for example because it is stopped, the cache works in memory.
func TestFileCacheWithoutLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "vectors")
		c, other := openCache(t, path), openCache(t, path)
		if err := filelock.TryLock(other.file); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		err := c.Put(keyOf(1), []float32{1})
		_, unknown := c.Get(keyOf(2))
		v, known := c.Get(keyOf(1))
		if err != nil || unknown || !known || len(v) != 1 || time.Since(begin) != lockTimeout {
			t.Errorf("without the lock: Put = %v, Get of an unknown key = %v, of the known one = %v, %v after %s, "+
				"want only the known one after %s", err, unknown, v, known, time.Since(begin), lockTimeout)
		}
		begin = time.Now()
		if openCache(t, path); time.Since(begin) != openTimeout {
			t.Errorf("OpenFileCache without the lock took %s, want %s", time.Since(begin), openTimeout)
		}
		if err := filelock.Unlock(other.file); err != nil {
			t.Fatal(err)
		}
		if err := c.Put(keyOf(3), []float32{3}); err != nil {
			t.Error(err)
		}
		if v, ok := other.Get(keyOf(3)); !ok || len(v) != 1 || v[0] != 3 {
			t.Errorf("Get after the lock was released = %v, %v, want the other's vector", v, ok)
		}
	})
}

// If two processes share a file, each finds the other's vectors, even after one of them dies during a write.
func TestFileCacheIsShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vectors")
	a, b := openCache(t, path), openCache(t, path)
	put := func(c *FileCache, i int) {
		t.Helper()
		if err := c.Put(keyOf(i), []float32{float32(i), 0.5}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(c *FileCache, i int) {
		t.Helper()
		if v, ok := c.Get(keyOf(i)); !ok || len(v) != 2 || v[0] != float32(i) || v[1] != 0.5 {
			t.Errorf("Get(%d) = %v, %v, want [%d 0.5]", i, v, ok, i)
		}
	}
	put(a, 1)
	want(b, 1)
	put(b, 2)
	want(a, 2)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(whole, whole[:30]...), 0o600); err != nil { // a process dies during a write
		t.Fatal(err)
	}
	put(a, 3)
	want(b, 3)
	if _, ok := b.Get(keyOf(9)); ok {
		t.Error("Get of an unknown key has found a vector, want none")
	}
	for i := 4; i < 11; i++ { // exceeds twice the limit, so the file is emptied
		put(a, i)
	}
	put(b, 20)
	put(a, 21)
	want(b, 21)
	want(openCache(t, path), 20)
	if info, err := os.Stat(path); err != nil || info.Size() > 10*int64(len(whole)/2) {
		t.Errorf("the file is %d bytes, %v, want at most 10 records of %d bytes", info.Size(), err, len(whole)/2)
	}
}
