package objects

import (
	"context"
	"errors"
	"iter"
	"sync"
)

// Reopening returns a store that passes requests to the given one until a request fails with ErrTemporary or ErrDenied.
// Then it calls reopen, which returns the store to use from then on, or nil to keep the current one. A denied request
// is sent to the new store at once. After ErrTemporary, the caller decides whether to send the request again.
func Reopening(store Objects, reopen func() Objects) Objects {
	return &reopening{store: store, reopen: reopen}
}

type reopening struct {
	reopen func() Objects

	mu    sync.Mutex
	store Objects
}

func (r *reopening) current() Objects {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store
}

// reopenAfter opens the store again if err, of a request to used, says that used did not respond or denied access. It
// returns the store to which the request should be sent again, or nil.
func (r *reopening) reopenAfter(err error, used Objects) Objects {
	denied := errors.Is(err, ErrDenied)
	if !denied && !errors.Is(err, ErrTemporary) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store == used { // otherwise another request has opened it again
		if next := r.reopen(); next != nil {
			r.store = next
		}
	}
	if !denied || r.store == used {
		return nil
	}
	return r.store
}

// reopened calls op with the current store. If reopenAfter returns another store, reopened calls op again with that.
func reopened[T any](r *reopening, op func(Objects) (T, error)) (T, error) {
	used := r.current()
	v, err := op(used)
	if next := r.reopenAfter(err, used); next != nil {
		return op(next)
	}
	return v, err
}

// Get implements Objects.
func (r *reopening) Get(ctx context.Context, key string, opts GetOptions) (Object, error) {
	return reopened(r, func(o Objects) (Object, error) { return o.Get(ctx, key, opts) })
}

// Put implements Objects.
func (r *reopening) Put(ctx context.Context, key string, data []byte, sum Digest) error {
	_, err := reopened(r, func(o Objects) (struct{}, error) { return struct{}{}, o.Put(ctx, key, data, sum) })
	return err
}

// CompareAndSwap implements Objects.
func (r *reopening) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	return reopened(r, func(o Objects) (string, error) { return o.CompareAndSwap(ctx, key, old, data) })
}

// List implements Objects.
func (r *reopening) List(ctx context.Context, prefix, after string) iter.Seq2[ObjectInfo, error] {
	return func(yield func(ObjectInfo, error) bool) {
		last := after
		stopped, err := reopened(r, func(o Objects) (bool, error) { return listAfter(ctx, o, prefix, &last, yield) })
		if err != nil && !stopped {
			yield(ObjectInfo{}, err)
		}
	}
}

// Delete implements Objects.
func (r *reopening) Delete(ctx context.Context, keys ...string) error {
	_, err := reopened(r, func(o Objects) (struct{}, error) { return struct{}{}, o.Delete(ctx, keys...) })
	return err
}
