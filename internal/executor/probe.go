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

// Do returns the result of the first successful probe. Until one has succeeded, each Do calls probe, one
// call at a time.
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

// ProbeOwner returns a new owner name with the prefix, for a probe's box. No other process uses it.
func ProbeOwner(prefix string) string {
	unique := strconv.FormatUint(uint64(rand.Uint32()), 36) //nolint:gosec // process ids may be reused
	return prefix + strconv.Itoa(os.Getpid()) + "-" + unique
}

// SupportedPython reports whether the runner supports a version of Python.
func SupportedPython(major, minor int) bool { return major == 3 && minor >= 9 }
