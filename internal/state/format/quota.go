package format

import (
	"cmp"
	"fmt"
	"strings"
)

// Quota bounds one version of a workspace. Zero fields mean the limits of DefaultQuota.
type Quota struct {
	Bytes   int64 // sum of file sizes
	Files   int   // files, directories and symbolic links
	Largest int64 // bytes of one file
	Depth   int   // components of a path
}

// DefaultQuota allows 5 GiB in 200,000 entries, files of up to 2 GiB, and paths of up to 64 components.
var DefaultQuota = Quota{Bytes: 5 << 30, Files: 200_000, Largest: 2 << 30, Depth: 64}

// WithDefaults returns q with zero fields replaced by the defaults.
func (q Quota) WithDefaults() Quota {
	q.Bytes = cmp.Or(q.Bytes, DefaultQuota.Bytes)
	q.Files = cmp.Or(q.Files, DefaultQuota.Files)
	q.Largest = cmp.Or(q.Largest, DefaultQuota.Largest)
	q.Depth = cmp.Or(q.Depth, DefaultQuota.Depth)
	return q
}

// QuotaError names the limit of the quota that a version exceeds. It wraps ErrQuota.
type QuotaError struct {
	What    string // what is limited, for people
	Has     int64  // the version's value
	Limit   int64
	Largest []string // the paths or directories with the largest shares
}

// Error implements error.
func (e *QuotaError) Error() string {
	text := fmt.Sprintf("%v: %s is %d; the limit is %d", ErrQuota, e.What, e.Has, e.Limit)
	if len(e.Largest) > 0 {
		text += "; the largest: " + strings.Join(e.Largest, ", ")
	}
	return text
}

// Unwrap returns ErrQuota.
func (e *QuotaError) Unwrap() error { return ErrQuota }

// OverLimit returns an error that wraps ErrQuota, for a limit that no quota raises.
func OverLimit(reason error) error { return limitError{reason} }

type limitError struct{ reason error }

// Error implements error.
func (e limitError) Error() string { return "limit of all workspaces exceeded: " + e.reason.Error() }

// Unwrap returns ErrQuota and the reason.
func (e limitError) Unwrap() []error { return []error{ErrQuota, e.reason} }

// CheckSet returns an error if a merged or edited version exceeds Bytes or Files.
func (q Quota) CheckSet(s *EntrySet) error {
	switch {
	case s.Bytes > q.Bytes:
		return &QuotaError{"the total size of the new version in bytes", s.Bytes, q.Bytes, nil}
	case s.Files > q.Files:
		return &QuotaError{"the number of files of the new version", int64(s.Files), int64(q.Files), nil}
	}
	return nil
}
