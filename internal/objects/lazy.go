package objects

import (
	"context"
	"iter"
	"sync"
)

// Lazy returns a store that calls open at the first request. If open fails, every request returns its error.
func Lazy(open func() (Objects, error)) Objects { return lazy{sync.OnceValues(open)} }

type lazy struct {
	open func() (Objects, error)
}

// Get implements Objects.
func (l lazy) Get(ctx context.Context, key string, opts GetOptions) (Object, error) {
	store, err := l.open()
	if err != nil {
		return Object{}, err
	}
	return store.Get(ctx, key, opts)
}

// Put implements Objects.
func (l lazy) Put(ctx context.Context, key string, data []byte, sum Digest) error {
	store, err := l.open()
	if err != nil {
		return err
	}
	return store.Put(ctx, key, data, sum)
}

// CompareAndSwap implements Objects.
func (l lazy) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	store, err := l.open()
	if err != nil {
		return "", err
	}
	return store.CompareAndSwap(ctx, key, old, data)
}

// List implements Objects.
func (l lazy) List(ctx context.Context, prefix, after string) iter.Seq2[ObjectInfo, error] {
	store, err := l.open()
	if err != nil {
		return func(yield func(ObjectInfo, error) bool) { yield(ObjectInfo{}, err) }
	}
	return store.List(ctx, prefix, after)
}

// Delete implements Objects.
func (l lazy) Delete(ctx context.Context, keys ...string) error {
	store, err := l.open()
	if err != nil {
		return err
	}
	return store.Delete(ctx, keys...)
}
