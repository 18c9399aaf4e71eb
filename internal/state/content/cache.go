package content

import (
	"container/list"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/objects"
)

// diskCache keeps immutable objects (packs and manifests) on the worker's disk, named by
// the SHA-256 of their bytes, the least recently used ones leaving first.
// They are there as they travel, compressed and many files in one, so nothing of a tree could be a clone
// (reflink) or a link of them: each file of a tree is written anew.
// It serves all trees of a worker and belongs to one process. It is only ever
// a shortcut: readers verify, nothing is synced, and every failure is a miss.
type diskCache struct {
	dir string // empty: no cache
	max int64  // bytes

	mu    sync.Mutex
	size  int64
	rest  time.Time  // until then nothing is put: the disk was full
	order *list.List // of *cached, most recently used first
	items map[objects.Digest]*list.Element
}

type cachedObject struct {
	id   objects.Digest
	size int64
}

const (
	defaultCacheBytes = 2 << 30
	restAfterFull     = time.Minute
)

// openCache takes over what an earlier process left in dir.
func openCache(dir string, limit int64) *diskCache {
	c := &diskCache{dir: dir, max: limit, order: list.New(), items: map[objects.Digest]*list.Element{}}
	if c.max <= 0 {
		c.max = defaultCacheBytes
	}
	if dir == "" {
		return c
	}
	type found struct {
		cachedObject
		used time.Time
	}
	var all []found
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // what cannot be read is not cached
		}
		var f found
		info, err := d.Info()
		if err != nil || f.id.UnmarshalText([]byte(d.Name())) != nil {
			os.Remove(path) //nolint:gosec // left by a crash; nobody else writes in this directory
			return nil      //nolint:nilerr // not a blob
		}
		f.size, f.used = info.Size(), info.ModTime()
		all = append(all, f)
		return nil
	})
	slices.SortFunc(all, func(a, b found) int { return a.used.Compare(b.used) })
	for _, f := range all {
		c.insert(f.cachedObject)
	}
	c.trim(c.bound())
	return c
}

func (c *diskCache) path(id objects.Digest) string {
	hex := id.String()
	return filepath.Join(c.dir, hex[:2], hex)
}

// open returns the object's file, or nil.
func (c *diskCache) open(id objects.Digest) *os.File {
	c.mu.Lock()
	item, ok := c.items[id]
	if ok {
		c.order.MoveToFront(item)
	}
	c.mu.Unlock()
	if !ok {
		return nil
	}
	f, err := os.Open(c.path(id))
	if err != nil {
		c.drop(id)
		return nil
	}
	return f
}

// get returns the whole object, or nil.
func (c *diskCache) get(id objects.Digest) []byte {
	f := c.open(id)
	if f == nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	data := make([]byte, info.Size())
	if _, err := f.ReadAt(data, 0); err != nil && len(data) > 0 {
		c.drop(id)
		return nil
	}
	return data
}

// put keeps a copy of data.
func (c *diskCache) put(id objects.Digest, data []byte) {
	if c.dir == "" || int64(len(data)) > c.max/2 || c.has(id) || c.resting() {
		return
	}
	if err := c.write(id, data); err != nil {
		if isDiskFull(err) {
			c.yield()
		}
		return
	}
	c.insert(cachedObject{id, int64(len(data))})
	c.trim(c.bound())
}

// bound is how large the cache may be now: it leaves as much of the disk free as it takes.
func (c *diskCache) bound() int64 {
	free, ok := freeBytes(c.dir)
	if !ok {
		return c.max
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.max, (c.size+free)/2)
}

// yield gives the whole disk to others for a while, and returns how many bytes it took of it.
func (c *diskCache) yield() (bytes int64) {
	c.mu.Lock()
	bytes = c.size
	c.rest = time.Now().Add(restAfterFull)
	c.mu.Unlock()
	c.trim(0)
	return bytes
}

func (c *diskCache) resting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.rest)
}

func (c *diskCache) write(id objects.Digest, data []byte) error {
	path := c.path(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

func (c *diskCache) has(id objects.Digest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.items[id]
	return ok
}

func (c *diskCache) insert(item cachedObject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.items[item.id]; ok {
		return
	}
	c.items[item.id] = c.order.PushFront(&item)
	c.size += item.size
}

// drop forgets an object that is broken or gone.
func (c *diskCache) drop(id objects.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if item, ok := c.items[id]; ok {
		c.remove(item)
	}
}

// trim removes the least recently used objects beyond limit bytes.
func (c *diskCache) trim(limit int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.size > limit && c.order.Len() > 0 {
		c.remove(c.order.Back())
	}
}

// remove needs c.mu. Readers that have the file open keep it.
func (c *diskCache) remove(item *list.Element) {
	entry := c.order.Remove(item).(*cachedObject) //nolint:errcheck // the list holds nothing else
	delete(c.items, entry.id)
	c.size -= entry.size
	os.Remove(c.path(entry.id))
}

// freeBytes is what may still be written on the disk of dir.
func freeBytes(dir string) (int64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true //nolint:unconvert // of other types on darwin
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
