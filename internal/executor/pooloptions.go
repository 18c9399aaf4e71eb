package executor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// PoolOptions of NewPool. A zero field means its default.
type PoolOptions struct {
	MinReady      int           // unbound boxes kept ready; default 3, negative: none
	Max           int           // boxes, including those being created and destroyed; MinReady + max(4, processors)
	Reuse         string        // ReuseTenant (default) or ReuseNever
	Dir           string        // for workspaces and snapshots; required
	Owner         string        // whose remains Run sweeps; required, unique among running processes
	MemoryMBTotal int           // that acquired boxes may use together; 0: no limit
	DiskMB        int64         // size of each box's disk, if this process is root; default 1024, negative: none
	IdleTTL       time.Duration // a bound box idle for longer makes room for an unbound one; default 1 min
	Mounts        []Mount       // in every box: the catalogue
	Environments  []Environment // kinds of boxes, with different names; empty: one with the driver's default root
	Log           *slog.Logger
	Trace         func(PoolEvent) // called for each step of a box, in order; it must not call the pool
}

// When a box is used again.
const (
	ReuseTenant = "tenant" // for tasks of the same key
	ReuseNever  = "never"
)

func (o PoolOptions) orDefaults() (PoolOptions, error) {
	if o.Dir == "" || o.Owner == "" {
		return o, errors.New("a state directory and an owner are required")
	}
	if o.Owner != filepath.Base(o.Owner) || o.Owner == ".." {
		return o, fmt.Errorf("owner %q is not a file name", o.Owner)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, err
	}
	o.Dir = dir
	o.Reuse = cmp.Or(o.Reuse, ReuseTenant)
	if o.Reuse != ReuseTenant && o.Reuse != ReuseNever {
		return o, fmt.Errorf("reuse %q is neither %q nor %q", o.Reuse, ReuseTenant, ReuseNever)
	}
	all := o.TotalReady()
	o.MinReady = max(0, cmp.Or(o.MinReady, 3))
	o.Environments = slices.Clone(o.Environments)
	if len(o.Environments) == 0 {
		o.Environments = []Environment{{}}
	}
	o.Max = cmp.Or(o.Max, all+max(4, runtime.NumCPU()))
	if o.Max < 1 {
		return o, fmt.Errorf("a pool of at most %d boxes", o.Max)
	}
	o.MinReady = min(o.MinReady, o.Max)
	names := map[string]bool{}
	for i := range o.Environments {
		e := &o.Environments[i]
		if names[e.Name] {
			return o, fmt.Errorf("duplicate environment %q", e.Name)
		}
		names[e.Name] = true
		e.MinReady = min(max(0, cmp.Or(e.MinReady, o.MinReady)), o.Max)
	}
	o.DiskMB = cmp.Or(o.DiskMB, 1024)
	o.IdleTTL = cmp.Or(o.IdleTTL, time.Minute)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o, nil
}

// TotalReady is how many unbound boxes a pool with these options keeps ready, over all environments.
func (o PoolOptions) TotalReady() int {
	ready := max(0, cmp.Or(o.MinReady, 3))
	if len(o.Environments) == 0 {
		return ready
	}
	n := 0
	for _, e := range o.Environments {
		n += max(0, cmp.Or(e.MinReady, ready))
	}
	return n
}
