package mem

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/objects"
)

// Call is one request.
type Call struct {
	N    int    // number of the call since the last call of Objects.Calls, from 1
	Op   string // get, put, file, swap, list, delete
	Key  string
	Size int // bytes of the body
}

// Fault is a way in which a call fails.
type Fault int

// Faults.
const (
	OK           Fault = iota // no fault
	NotApplied                // a temporary error; the call has no effect
	LostResponse              // a temporary error, although the call was applied
	Corrupt                   // a read returns data with a flipped bit
	Broken                    // an error that is not temporary; the call has no effect
	Hang                      // no response until the call's context ends; the call has no effect
)

var errBroken = errors.New("injected: broken")

// SetFault installs the function that decides how each call fails. Concurrent calls call it concurrently; it may block
// to make them slow. Nil ends all faults.
func (o *Objects) SetFault(fault func(Call) Fault) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fault = fault
}

// Damage replaces an object's data with the result of fn, like a failing disk. If the result is nil, Damage removes the
// object. A later Put of the original content is not a violation.
func (o *Objects) Damage(key string, fn func(data []byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, ok := o.objects[key]
	if !ok {
		return
	}
	obj.was = obj.undamaged()
	if obj.data = fn(bytes.Clone(obj.data)); obj.data == nil {
		delete(o.objects, key)
		return
	}
	o.objects[key] = obj
}

// Calls returns the calls since the last call of Calls.
func (o *Objects) Calls() []Call {
	o.mu.Lock()
	defer o.mu.Unlock()
	calls := o.calls
	o.calls = nil
	return calls
}

// enter records a call, and asks the function of SetFault how the call fails. An error means that the call must have no
// effect.
func (o *Objects) enter(ctx context.Context, c Call) (Fault, error) {
	if err := ctx.Err(); err != nil {
		return OK, err
	}
	o.mu.Lock()
	c.N = len(o.calls) + 1
	o.calls = append(o.calls, c)
	fault := o.fault
	o.mu.Unlock()
	if fault == nil {
		return OK, nil
	}
	switch f := fault(c); f {
	case NotApplied:
		return f, fmt.Errorf("%s %s: injected: %w", c.Op, c.Key, objects.ErrTemporary)
	case Hang:
		<-ctx.Done()
		return f, ctx.Err()
	case Broken:
		return f, fmt.Errorf("%s %s: %w", c.Op, c.Key, errBroken)
	default:
		return f, ctx.Err()
	}
}

// leave returns the error of a call that was applied: nil, unless the fault f is that its response is lost.
func (o *Objects) leave(f Fault) error {
	if f == LostResponse {
		return fmt.Errorf("injected: lost response: %w", objects.ErrTemporary)
	}
	return nil
}
