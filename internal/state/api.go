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

// QuotaError names the limit of the quota that a version exceeds. It wraps ErrQuota.
type QuotaError = format.QuotaError

// Secrets are the secrets from which a tenant's keys are derived.
type Secrets = format.Secrets

// Owner is the user and group that materialised files belong to.
type Owner = tree.Owner

// Compaction bounds the number of packs over which a version is spread.
type Compaction = repo.Compaction

// Commit describes a commit, or reports that none was needed.
type Commit = repo.Commit

// CommitOptions describes the task that commits.
type CommitOptions = repo.CommitOptions

// ConflictError is returned by Commit and Edit when another commit has changed the same paths. It wraps ErrConflict.
type ConflictError = repo.ConflictError

// FileInfo describes one path of a version.
type FileInfo = repo.FileInfo

// Kinds of paths in FileInfo and Edit.
const (
	File    = repo.File
	Dir     = repo.Dir
	Symlink = repo.Symlink
)

// Errors of Store that callers branch on. The errors of package objects are returned too.
var (
	ErrNotFound = objects.ErrNotFound
	ErrConflict = objects.ErrConflict // another commit changed the workspace first
	ErrDeleted  = repo.ErrDeleted
	ErrFenced   = repo.ErrFenced
	ErrKey      = format.ErrKey
	ErrQuota    = format.ErrQuota
	ErrDiskFull = content.ErrDiskFull
)
