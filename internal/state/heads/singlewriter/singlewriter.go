// Package singlewriter is the head mode for object stores that ignore or reject conditional writes: it compares and
// writes under a lock. It is safe only if the lock excludes all other writers. [HostLock] excludes those on the same
// host: if two hosts write to the same workspaces, commits are silently lost.
package singlewriter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/codefleet/codefleet/internal/filelock"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/heads"
)

// Lock excludes other writers until unlock is called.
type Lock func(context.Context) (unlock func(), err error)

// HostLock returns a Lock that excludes all writers on this host that lock the same file, in this process or others.
func HostLock(path string) Lock {
	return func(ctx context.Context) (func(), error) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := filelock.Lock(ctx, f); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		return func() { f.Close() }, nil
	}
}

// New returns the HEADs of bucket. Each HEAD is the object at its key, and is swapped under the lock.
func New(bucket objects.Objects, lock Lock) heads.Store { return &store{bucket, lock} }

type store struct {
	bucket objects.Objects
	lock   Lock
}

// Get implements heads.Store.
func (s *store) Get(ctx context.Context, key, version string) (objects.Object, error) {
	obj, err := s.bucket.Get(ctx, key, objects.GetOptions{})
	if err == nil && version != "" && obj.ETag == version {
		return objects.Object{}, fmt.Errorf("get %s: %w", key, objects.ErrNotModified)
	}
	return obj, err
}

// CompareAndSwap implements heads.Store.
func (s *store) CompareAndSwap(ctx context.Context, key, version string, data []byte) (string, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return "", fmt.Errorf("swap %s: %w", key, err)
	}
	defer unlock()
	current, err := s.bucket.Get(ctx, key, objects.GetOptions{})
	if err != nil && !errors.Is(err, objects.ErrNotFound) {
		return "", err
	}
	if current.ETag != version {
		return "", fmt.Errorf("swap %s: %w", key, objects.ErrConflict)
	}
	if err := s.bucket.Put(ctx, key, data, objects.Sum(data)); err != nil {
		return "", err
	}
	current, err = s.bucket.Get(ctx, key, objects.GetOptions{})
	return current.ETag, err
}

// List implements heads.Store.
func (s *store) List(ctx context.Context, prefix string) ([]objects.ObjectInfo, error) {
	return heads.List(ctx, s.bucket, prefix, func(object string) (string, bool) {
		return object, strings.HasSuffix(object, heads.Suffix)
	})
}

// Delete implements heads.Store.
func (s *store) Delete(ctx context.Context, key string) error { return s.bucket.Delete(ctx, key) }
