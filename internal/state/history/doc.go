// Package history works with the versions of a workspace: it lists, compares, restores, forks and pins them, and reads
// their files. It also lists and deletes workspaces. Its functions take a [repo.Repo].
package history
