// Package content stores the content of files in packs: immutable objects that hold many blobs.
//
// A [Store] reads blobs through a cache on the local disk and verifies them. A [Packer] writes new ones. The package
// knows blobs by their digests and packs; it knows neither versions nor workspaces.
package content

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Store gives access to the packs in one object store. It is safe for concurrent use.
type Store struct {
	Bucket objects.Objects
	Codec  format.Codec

	cache   *diskCache
	secrets func(tenant string) format.Secrets
	rings   sync.Map  // maps tenants to *format.Keyring
	buffers sync.Pool // contains *[]byte
	log     *slog.Logger
}

// Options configures a Store.
type Options struct {
	CacheDir   string                             // empty means no cache
	CacheBytes int64                              // limit of CacheDir; the default is 2 GiB
	Secrets    func(tenant string) format.Secrets // nil means no encryption
	Log        *slog.Logger
}

// New returns a Store on bucket. It sends no request.
func New(bucket objects.Objects, o Options) *Store {
	return &Store{
		Bucket: bucket, Codec: format.NewCodec(), cache: openCache(o.CacheDir, o.CacheBytes),
		secrets: o.Secrets, log: o.Log,
	}
}

// Uncached returns a Store without a cache on the same object store.
func (s *Store) Uncached() *Store {
	return &Store{Bucket: s.Bucket, Codec: s.Codec, cache: openCache("", 0), secrets: s.secrets, log: s.log}
}

// Keys returns a tenant's keys.
func (s *Store) Keys(tenant string) *format.Keyring {
	if r, ok := s.rings.Load(tenant); ok {
		return r.(*format.Keyring) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	var secrets format.Secrets
	if s.secrets != nil {
		secrets = s.secrets(tenant)
	}
	r, _ := s.rings.LoadOrStore(tenant, format.NewKeyring(tenant, secrets))
	return r.(*format.Keyring) //nolint:errcheck,forcetypeassert // nothing else is stored
}

// Buffer returns a buffer for reuse, or nil. PutBuffer gives it back.
func (s *Store) Buffer() []byte {
	if p, ok := s.buffers.Get().(*[]byte); ok {
		return *p
	}
	return nil
}

// PutBuffer keeps a buffer for reuse.
func (s *Store) PutBuffer(b *[]byte) { s.buffers.Put(b) }

// IsCached reports whether a pack or manifest is in the cache.
func (s *Store) IsCached(id objects.Digest) bool { return s.cache.has(id) }

// Cached returns the verified bytes of a cached object, or nil.
func (s *Store) Cached(id objects.Digest) []byte {
	data := s.cache.get(id)
	if data != nil && objects.Sum(data) != id {
		s.cache.drop(id)
		return nil
	}
	return data
}

// Cache caches an immutable object.
func (s *Store) Cache(id objects.Digest, data []byte) { s.cache.put(id, data) }

// ErrDiskFull is returned when the worker's disk is full, even without the cache.
var ErrDiskFull = errors.New("no space left on the worker's disk")

// EmptyCache empties the cache and stops caching for a minute, to free disk space.
func (s *Store) EmptyCache(ctx context.Context) {
	s.log.WarnContext(ctx, "disk full, cache emptied", "bytes", s.cache.clear())
}

// DiskError returns err. If err means that the disk is full, it empties the cache and wraps err in ErrDiskFull.
func (s *Store) DiskError(ctx context.Context, err error) error {
	if err == nil || !isDiskFull(err) || errors.Is(err, ErrDiskFull) {
		return err
	}
	s.EmptyCache(ctx)
	return fmt.Errorf("%w: %w", ErrDiskFull, err)
}
