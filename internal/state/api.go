package state

import (
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
	"github.com/codefleet/codefleet/internal/state/tree"
)

// What the methods of Store take and return, so that callers need no package below.
type (
	Ref           = format.Ref
	Quota         = format.Quota
	QuotaError    = format.QuotaError
	Secrets       = format.Secrets
	Owner         = tree.Owner
	Compaction    = repo.Compaction
	Commit        = repo.Commit
	CommitOptions = repo.CommitOptions
	ConflictError = repo.ConflictError
	FileInfo      = repo.FileInfo
)

// Kinds of paths, as FileInfo and Edit name them.
const (
	File = repo.File
	Dir  = repo.Dir
	Link = repo.Link
)

// Errors of Store that callers branch on. Those of an object store, see package objects, are returned too.
var (
	ErrNotFound = objects.ErrNotFound
	ErrConflict = objects.ErrConflict // another task changed it first
	ErrDeleted  = repo.ErrDeleted
	ErrKey      = format.ErrKey
	ErrQuota    = format.ErrQuota
	ErrDiskFull = content.ErrDiskFull
)
