// Package mutex has a mutual exclusion lock whose wait ends with a context.
package mutex

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Mutex is like a sync.Mutex, but the wait for it can be ended. It is for work that takes long, such as requests.
type Mutex struct{ permit *semaphore.Weighted }

// New returns an unlocked Mutex.
func New() *Mutex { return &Mutex{semaphore.NewWeighted(1)} }

// Lock waits until it can lock m. If ctx ends first, Lock returns ctx's error, and m is not locked.
func (m *Mutex) Lock(ctx context.Context) error { return m.permit.Acquire(ctx, 1) }

// Unlock unlocks m. It panics if m is not locked.
func (m *Mutex) Unlock() { m.permit.Release(1) }
