package state

import (
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
	"github.com/codefleet/codefleet/internal/state/tree"
)

// Ref names a workspace.
type Ref = format.Ref

// Quota bounds one version of a workspace.
type Quota = format.Quota

// QuotaError says which bound of the quota a version exceeds. It wraps ErrQuota.
type QuotaError = format.QuotaError

// Secrets are what a tenant's keys are derived from.
type Secrets = format.Secrets

// Owner is the user and group that materialised files belong to.
type Owner = tree.Owner

// Compaction bounds over how many packs a version is spread.
type Compaction = repo.Compaction

// Commit is one committed version, or the finding that none was needed.
type Commit = repo.Commit

// CommitOptions says who commits and what goes with the files.
type CommitOptions = repo.CommitOptions

// ConflictError is returned by Commit when another task has changed the same paths. It wraps ErrConflict.
type ConflictError = repo.ConflictError

// FileInfo is one path of a version.
type FileInfo = repo.FileInfo

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
	ErrFenced   = repo.ErrFenced
	ErrKey      = format.ErrKey
	ErrQuota    = format.ErrQuota
	ErrDiskFull = content.ErrDiskFull
)
