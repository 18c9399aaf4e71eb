package state

import (
	"errors"

	"github.com/codefleet/codefleet/internal/objects"
)

// Errors of Store that callers branch on; see package objects for those that an object store returns too.
var (
	ErrNotFound = objects.ErrNotFound
	ErrConflict = objects.ErrConflict // another task changed it first
	ErrDeleted  = errors.New("workspace was deleted")
	ErrKey      = errors.New("no key for it")
	ErrQuota    = errors.New("workspace quota exceeded")
	ErrDiskFull = errors.New("no space left on the worker's disk")
)
