package executor

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
)

// ProbeOnce keeps the result of a driver's probe. The zero value is ready for use.
type ProbeOnce struct {
	mu   sync.Mutex
	info *Info
}

// Do calls probe, one call at a time, until it has succeeded once, and returns its result. A failure is not
// kept.
func (o *ProbeOnce) Do(probe func() (Info, error)) (Info, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.info != nil {
		return *o.info, nil
	}
	info, err := probe()
	if err != nil {
		return Info{}, err
	}
	o.info = &info
	return info, nil
}

// ProbeOwner returns a new owner name for the box of a probe. It begins with prefix; no other process has it.
func ProbeOwner(prefix string) string {
	unique := strconv.FormatUint(uint64(rand.Uint32()), 36) //nolint:gosec // process ids are reused, not attacked
	return prefix + strconv.Itoa(os.Getpid()) + "-" + unique
}

// SupportedPython reports whether the runner supports a version of Python.
func SupportedPython(major, minor int) bool { return major == 3 && minor >= 9 }
