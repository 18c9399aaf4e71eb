package format

import (
	"cmp"
	"fmt"
	"strings"
)

// Quota bounds one version of a workspace; zero fields take the defaults of DefaultQuota.
type Quota struct {
	Bytes   int64 // sum of file sizes
	Files   int   // files, directories and symbolic links
	Largest int64 // bytes of one file
	Depth   int   // components of a path
}

// DefaultQuota is 5 GiB in 200,000 entries, one of them at most 2 GiB, 64 levels deep.
var DefaultQuota = Quota{Bytes: 5 << 30, Files: 200_000, Largest: 2 << 30, Depth: 64}

// WithDefaults fills zero fields.
func (q Quota) WithDefaults() Quota {
	q.Bytes = cmp.Or(q.Bytes, DefaultQuota.Bytes)
	q.Files = cmp.Or(q.Files, DefaultQuota.Files)
	q.Largest = cmp.Or(q.Largest, DefaultQuota.Largest)
	q.Depth = cmp.Or(q.Depth, DefaultQuota.Depth)
	return q
}

// QuotaError says which bound of the quota a version exceeds. It wraps ErrQuota.
type QuotaError struct {
	What    string // the bound, for people
	Has     int64  // what the version has
	Limit   int64
	Largest []string // the paths or directories that contribute most, with their share
}

// Error implements error.
func (e *QuotaError) Error() string {
	return fmt.Sprintf("%v: %s is %d, limit is %d; most of it: %s",
		ErrQuota, e.What, e.Has, e.Limit, strings.Join(e.Largest, ", "))
}

// Unwrap returns ErrQuota.
func (e *QuotaError) Unwrap() error { return ErrQuota }

// CheckSet applies the quota to a merged version.
func (q Quota) CheckSet(s *EntrySet) error {
	switch {
	case s.Bytes > q.Bytes:
		return &QuotaError{"total in bytes, merged with other tasks", s.Bytes, q.Bytes, nil}
	case s.Files > q.Files:
		return &QuotaError{"number of files, merged with other tasks", int64(s.Files), int64(q.Files), nil}
	}
	return nil
}
