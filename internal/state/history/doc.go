// Package history is what people do with the versions of a workspace: list and compare them, read their files,
// restore, fork, pin and delete. Its functions work on a [repo.Repo].
package history
