package executor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
)

// PoolOptions configure NewPool. A zero field means the default.
type PoolOptions struct {
	MinReady int // unbound boxes kept ready; default 3, negative for none
	// Max limits the boxes, in any state. The default is no limit if IdleMemoryMB is set, and otherwise
	// TotalReady() + max(4, processors).
	Max           int
	Reuse         string        // ReuseTenant (default) or ReuseNever
	Dir           string        // directory for workspaces and snapshots; required
	Owner         string        // names this process as the boxes' owner; required, unique among running processes
	MemoryMBTotal int           // memory limit of all acquired boxes together; 0 for no limit
	IdleMemoryMB  int           // memory that idle boxes may use together; 0 for no limit. See scheduler.trimIdle
	DiskMB        int64         // size of each box's disk, if this process is root; default 1024, negative for none
	Mounts        []Mount       // mounts in every box, such as the catalogue
	Environments  []Environment // names must differ; by default one environment, with the driver's default root
	Log           *slog.Logger
	Trace         func(PoolEvent) // called for each step of a box, in order; it must not call the pool
}

// Values of PoolOptions.Reuse.
const (
	ReuseTenant = "tenant" // a box serves all requests that may share it (see Key)
	ReuseNever  = "never"  // a box serves one request
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
	totalReady := o.TotalReady()
	o.MinReady = max(0, cmp.Or(o.MinReady, 3))
	o.Environments = slices.Clone(o.Environments)
	if len(o.Environments) == 0 {
		o.Environments = []Environment{{}}
	}
	if o.Max == 0 && o.IdleMemoryMB == 0 {
		o.Max = totalReady + max(4, runtime.NumCPU())
	}
	if o.Max < 0 || o.IdleMemoryMB < 0 {
		return o, fmt.Errorf("maximum of %d boxes and of %d MB of idle ones; want 0 or more", o.Max, o.IdleMemoryMB)
	}
	if o.Max > 0 {
		o.MinReady = min(o.MinReady, o.Max)
	}
	names := map[string]bool{}
	for i := range o.Environments {
		e := &o.Environments[i]
		if names[e.Name] {
			return o, fmt.Errorf("duplicate environment %q", e.Name)
		}
		names[e.Name] = true
		e.MinReady = max(0, cmp.Or(e.MinReady, o.MinReady))
		if o.Max > 0 {
			e.MinReady = min(e.MinReady, o.Max)
		}
	}
	o.DiskMB = cmp.Or(o.DiskMB, 1024)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o, nil
}

// TotalReady returns how many unbound boxes a pool with these options keeps ready, over all environments, unless Max is
// lower.
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
