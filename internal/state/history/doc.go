// Package history works with the versions of a workspace: it lists and compares them, reads their files, and restores,
// forks, pins and deletes. Its functions take a [repo.Repo].
package history
