package selection

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"sync"
)

// MemoryCache keeps a bounded number of vectors in memory; the oldest go first.
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

// Put keeps a vector.
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

// FileCache is a MemoryCache that survives restarts: one append-only file. A record is key, u32 length, the numbers,
// u32 CRC; a torn or corrupt record ends the file and is cut off when it is opened. One process opens it at a time.
type FileCache struct {
	memory *MemoryCache

	mu   sync.Mutex
	file *os.File
}

const maxDimensions = 1 << 14

// OpenFileCache opens or creates the file at path; at most limit vectors are kept in memory.
func OpenFileCache(path string, limit int) (*FileCache, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open vector cache: %w", err)
	}
	c := &FileCache{memory: NewMemoryCache(limit), file: file}
	good, err := c.replay()
	if err == nil {
		err = file.Truncate(good)
	}
	if err == nil {
		_, err = file.Seek(good, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read vector cache %s: %w", path, err), file.Close())
	}
	return c, nil
}

// replay reads the records and returns where the good ones end.
func (c *FileCache) replay() (int64, error) {
	data, err := io.ReadAll(c.file)
	if err != nil {
		return 0, err
	}
	good := 0
	for {
		rest := data[good:]
		if len(rest) < sha256.Size+4 {
			return int64(good), nil
		}
		n := int(binary.LittleEndian.Uint32(rest[sha256.Size:]))
		size := sha256.Size + 4 + 4*n
		if n > maxDimensions || len(rest) < size+4 || crc32.ChecksumIEEE(rest[:size]) != binary.LittleEndian.Uint32(rest[size:]) {
			return int64(good), nil
		}
		v := make([]float32, n)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(rest[sha256.Size+4+4*i:]))
		}
		if err := c.memory.Put([sha256.Size]byte(rest[:sha256.Size]), v); err != nil {
			return 0, err
		}
		good += size + 4
	}
}

// Get returns a vector; callers must not change it.
func (c *FileCache) Get(key [sha256.Size]byte) ([]float32, bool) { return c.memory.Get(key) }

// Put keeps a vector and appends it to the file; it is not synced: a lost record costs one more request.
func (c *FileCache) Put(key [sha256.Size]byte, vector []float32) error {
	var b bytes.Buffer
	b.Write(key[:])
	record := binary.LittleEndian.AppendUint32(b.Bytes(), uint32(len(vector)))
	for _, x := range vector {
		record = binary.LittleEndian.AppendUint32(record, math.Float32bits(x))
	}
	record = binary.LittleEndian.AppendUint32(record, crc32.ChecksumIEEE(record))
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.file.Write(record); err != nil {
		return fmt.Errorf("append to vector cache: %w", err)
	}
	return c.memory.Put(key, vector)
}

// Close closes the file.
func (c *FileCache) Close() error { return c.file.Close() }
