package content

import (
	"container/list"
	"errors"
	"io"
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

// diskCache caches immutable objects (packs and manifests) on the local disk, under the SHA-256 of their bytes. It
// evicts the least recently used ones; those of an earlier process count as used when they were cached. Objects are
// cached as they are stored: compressed, with many files in one. So the files of a tree cannot be clones (reflinks) or
// hard links of cached objects.
//
// All trees of a process share one cache. Readers verify what they read, nothing is synced to the disk, and every
// failure counts as a miss.
type diskCache struct {
	dir string // empty means no cache
	max int64  // bytes

	mu          sync.Mutex
	size        int64      // bytes
	pausedUntil time.Time  // nothing is cached until then, because the disk was full
	order       *list.List // contains *cachedObject, the most recently used first
	items       map[objects.Digest]*list.Element
}

type cachedObject struct {
	id   objects.Digest
	size int64
}

const (
	defaultCacheBytes = 2 << 30
	pauseAfterFull    = time.Minute
)

// openCache returns the cache in dir, with the objects that an earlier process cached there. It removes other files.
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
		cached time.Time
	}
	var all []found
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // a file that cannot be read is not cached
		}
		var f found
		info, err := d.Info()
		if err != nil || f.id.UnmarshalText([]byte(d.Name())) != nil {
			os.Remove(path) //nolint:gosec // left by a crash; no other program writes here
			return nil      //nolint:nilerr // not an object
		}
		f.size, f.cached = info.Size(), info.ModTime()
		all = append(all, f)
		return nil
	})
	slices.SortFunc(all, func(a, b found) int { return a.cached.Compare(b.cached) })
	for _, f := range all {
		c.insert(f.cachedObject)
	}
	c.trim(c.limit())
	return c
}

func (c *diskCache) path(id objects.Digest) string {
	hex := id.String()
	return filepath.Join(c.dir, hex[:2], hex)
}

// open opens an object's file. It returns nil if the object is not cached.
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

// get returns an object's bytes, or nil.
func (c *diskCache) get(id objects.Digest) []byte {
	f := c.open(id)
	if f == nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		c.drop(id)
		return nil
	}
	return data
}

// put caches an object, unless it is larger than half of the cache or caching is paused.
func (c *diskCache) put(id objects.Digest, data []byte) {
	if c.dir == "" || int64(len(data)) > c.max/2 || c.has(id) || c.paused() {
		return
	}
	if err := c.write(id, data); err != nil {
		if isDiskFull(err) {
			c.clear()
		}
		return
	}
	c.insert(cachedObject{id, int64(len(data))})
	c.trim(c.limit())
}

// limit returns the largest permitted size in bytes. The cache leaves at least as much disk space free as it uses.
func (c *diskCache) limit() int64 {
	free, ok := freeBytes(c.dir)
	if !ok {
		return c.max
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.max, (c.size+free)/2)
}

// clear empties the cache and pauses caching. It returns the cache's former size.
func (c *diskCache) clear() (bytes int64) {
	c.mu.Lock()
	bytes = c.size
	c.pausedUntil = time.Now().Add(pauseAfterFull)
	c.mu.Unlock()
	c.trim(0)
	return bytes
}

func (c *diskCache) paused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.pausedUntil)
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

// drop removes an object that is damaged or cannot be read.
func (c *diskCache) drop(id objects.Digest) {
	c.mu.Lock()
	item, ok := c.items[id]
	if ok {
		c.forget(item)
	}
	c.mu.Unlock()
	if ok {
		os.Remove(c.path(id))
	}
}

// trim removes the least recently used objects until the cache has at most limit bytes. Readers that have an object's
// file open can still read it.
func (c *diskCache) trim(limit int64) {
	var removed []objects.Digest
	c.mu.Lock()
	for c.size > limit && c.order.Len() > 0 {
		removed = append(removed, c.forget(c.order.Back()))
	}
	c.mu.Unlock()
	for _, id := range removed {
		os.Remove(c.path(id)) // not under the lock: a cache of gigabytes has many files
	}
}

// forget removes an object from the list. The caller holds c.mu.
func (c *diskCache) forget(item *list.Element) objects.Digest {
	o := c.order.Remove(item).(*cachedObject) //nolint:errcheck // the list holds nothing else
	delete(c.items, o.id)
	c.size -= o.size
	return o.id
}

// freeBytes returns the free bytes of dir's file system. It returns false if they are unknown.
func freeBytes(dir string) (int64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true //nolint:unconvert // the types differ on darwin
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
