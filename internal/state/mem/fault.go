package mem

import (
	"bytes"
	"context"
	"fmt"

	"github.com/codefleet/codefleet/internal/objects"
)

// Call is one request that arrived.
type Call struct {
	N    int    // from 1, over all calls
	Op   string // get, put, swap, list, delete
	Key  string
	Size int // bytes of the body
}

// Fault is how a call goes wrong.
type Fault int

// How a call may end.
const (
	OK         Fault = iota // the call goes as it should
	NotApplied              // a temporary error, and nothing happened
	LostAnswer              // a temporary error, although it happened
	Corrupt                 // a read returns data with a flipped bit
	Broken                  // an error that is not temporary, and nothing happened
)

// SetFault installs the function that decides how each call ends. Calls that
// overlap call it at the same time; it may block to make them slow. nil ends all
// faults.
func (o *Objects) SetFault(fault func(Call) Fault) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fault = fault
}

// Damage changes what is stored under key, as a failing disk does; nil removes it. Storing the original content again
// is no violation.
func (o *Objects) Damage(key string, how func(data []byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, ok := o.objects[key]
	if !ok {
		return
	}
	obj.was = obj.undamaged()
	if obj.data = how(bytes.Clone(obj.data)); obj.data == nil {
		delete(o.objects, key)
		return
	}
	o.objects[key] = obj
}

// Calls returns the calls so far and forgets them.
func (o *Objects) Calls() []Call {
	o.mu.Lock()
	defer o.mu.Unlock()
	calls := o.calls
	o.calls = nil
	return calls
}

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
	case Broken:
		return f, fmt.Errorf("%s %s: injected: broken", c.Op, c.Key)
	default:
		return f, ctx.Err()
	}
}

func (o *Objects) leave(f Fault) error {
	if f == LostAnswer {
		return fmt.Errorf("injected: answer lost: %w", objects.ErrTemporary)
	}
	return nil
}
