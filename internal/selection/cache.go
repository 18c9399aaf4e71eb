package selection

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/filelock"
)

// MemoryCache keeps a limited number of vectors in memory and evicts the oldest. It is safe for concurrent use.
type MemoryCache struct {
	limit int

	mu      sync.RWMutex
	vectors map[[sha256.Size]byte][]float32
	order   [][sha256.Size]byte
}

// NewMemoryCache returns a cache of at most limit vectors.
func NewMemoryCache(limit int) *MemoryCache {
	return &MemoryCache{limit: limit, vectors: map[[sha256.Size]byte][]float32{}}
}

// Get returns a vector; callers must not change it.
func (c *MemoryCache) Get(key [sha256.Size]byte) ([]float32, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.vectors[key]
	return v, ok
}

// Put adds a vector.
func (c *MemoryCache) Put(key [sha256.Size]byte, vector []float32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.vectors[key]; !ok {
		c.order = append(c.order, key)
	}
	c.vectors[key] = vector
	if len(c.order) > c.limit {
		delete(c.vectors, c.order[0])
		c.order = c.order[1:]
	}
	return nil
}

// FileCache is a MemoryCache backed by a file that the processes of a host share. A record of the file is the key, a
// u32 number of dimensions, the float32 dimensions and a u32 CRC, all little-endian. Records are appended under a lock.
// A torn or corrupt record counts as the end of the file, and the next record overwrites it. Before a record is
// appended, the file is emptied if it is larger than twice limit records of that size.
type FileCache struct {
	memory *MemoryCache
	limit  int64

	mu   sync.Mutex
	file *os.File
	read int64 // bytes of the file that are in memory
	// lockedOut is true after a wait for the file's lock was in vain. Until the lock is free, nothing waits for it.
	lockedOut bool
}

const (
	maxDimensions = 1 << 14
	openTimeout   = 5 * time.Second // for the file's lock, which another process holds while it reads the file
	lockTimeout   = 50 * time.Millisecond
)

// OpenFileCache opens or creates the file at path. At most limit vectors are kept in memory.
func OpenFileCache(path string, limit int) (*FileCache, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open vector cache: %w", err)
	}
	c := &FileCache{memory: NewMemoryCache(limit), limit: int64(limit), file: file}
	if err := c.refresh(openTimeout); err != nil && !errors.Is(err, errLockedOut) {
		return nil, errors.Join(fmt.Errorf("read vector cache %s: %w", path, err), file.Close())
	}
	return c, nil
}

// Get returns a vector; callers must not change it. If the file cannot be read, or another process holds its
// lock for too long, only the vectors in memory are found.
func (c *FileCache) Get(key [sha256.Size]byte) ([]float32, bool) {
	if v, ok := c.memory.Get(key); ok {
		return v, true
	}
	if c.refresh(lockTimeout) != nil {
		return nil, false
	}
	return c.memory.Get(key)
}

// Put adds a vector and appends it to the file, unless another process holds the file's lock for too long. It does not
// sync the file, since a lost record only costs a request.
func (c *FileCache) Put(key [sha256.Size]byte, vector []float32) error {
	record := binary.LittleEndian.AppendUint32(slices.Clone(key[:]), uint32(len(vector)))
	for _, x := range vector {
		record = binary.LittleEndian.AppendUint32(record, math.Float32bits(x))
	}
	record = binary.LittleEndian.AppendUint32(record, crc32.ChecksumIEEE(record))
	err := c.locked(lockTimeout, func() error {
		if c.read > 2*c.limit*int64(len(record)) {
			c.read = 0
		}
		if err := c.file.Truncate(c.read); err != nil {
			return err
		}
		n, err := c.file.WriteAt(record, c.read)
		if err == nil {
			c.read += int64(n)
		}
		return err
	})
	if err != nil && !errors.Is(err, errLockedOut) {
		return fmt.Errorf("append to vector cache: %w", err)
	}
	return c.memory.Put(key, vector)
}

// refresh reads the file's new records.
func (c *FileCache) refresh(wait time.Duration) error {
	return c.locked(wait, func() error { return nil })
}

// errLockedOut means that another process, which may be stopped, holds the file's lock.
var errLockedOut = errors.New("another process holds the lock of the vector cache")

// locked reads the file's new records and calls fn, while it holds the file's lock. The error is errLockedOut if it
// does not get the lock within wait.
func (c *FileCache) locked(wait time.Duration, fn func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lockedOut {
		wait = 0
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), wait, errLockedOut)
	defer cancel()
	err := filelock.Lock(ctx, c.file)
	if c.lockedOut = errors.Is(err, errLockedOut); err != nil {
		return err
	}
	defer func() { _ = filelock.Unlock(c.file) }() // closing the file unlocks it too
	if err := c.catchUp(); err != nil {
		return err
	}
	return fn()
}

// catchUp reads the records that are not in memory, up to the first incomplete one.
func (c *FileCache) catchUp() error {
	info, err := c.file.Stat()
	if err != nil || info.Size() == c.read {
		return err
	}
	if info.Size() < c.read {
		c.read = 0 // another process emptied it
	}
	r := bufio.NewReaderSize(io.NewSectionReader(c.file, c.read, info.Size()-c.read), 1<<16)
	for {
		key, vector, size, err := readRecord(r)
		if err != nil || size == 0 {
			return err
		}
		if err := c.memory.Put(key, vector); err != nil {
			return err
		}
		c.read += size
	}
}

// readRecord returns one record and its size in the file. If the record is incomplete or corrupt, size is 0.
func readRecord(r io.Reader) (key [sha256.Size]byte, vector []float32, size int64, err error) {
	header := make([]byte, sha256.Size+4)
	if _, err := io.ReadFull(r, header); err != nil {
		return key, nil, 0, unlessEOF(err)
	}
	n := int(binary.LittleEndian.Uint32(header[sha256.Size:]))
	if n > maxDimensions {
		return key, nil, 0, nil
	}
	body := make([]byte, 4*n+4)
	if _, err := io.ReadFull(r, body); err != nil {
		return key, nil, 0, unlessEOF(err)
	}
	sum := crc32.Update(crc32.ChecksumIEEE(header), crc32.IEEETable, body[:4*n])
	if sum != binary.LittleEndian.Uint32(body[4*n:]) {
		return key, nil, 0, nil
	}
	vector = make([]float32, n)
	for i := range vector {
		vector[i] = math.Float32frombits(binary.LittleEndian.Uint32(body[4*i:]))
	}
	return [sha256.Size]byte(header), vector, int64(len(header) + len(body)), nil
}

// unlessEOF returns nil for io.EOF and io.ErrUnexpectedEOF, and err otherwise.
func unlessEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// Close closes the file.
func (c *FileCache) Close() error { return c.file.Close() }
