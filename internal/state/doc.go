// Package state keeps workspaces: directory trees with a history, stored as immutable objects in any S3-compatible
// store, and shared by workers that keep nothing.
//
// A [Store] is the few verbs that tasks use. A [Tree] is a directory of this host that holds one version of one
// workspace. The life of a task with it:
//
//	tree, _ := store.Tree(dir, ref)            // once per directory and workspace
//	store.Checkout(ctx, tree, nil)             // dir is the newest version
//	… the program runs in dir …
//	store.Commit(ctx, tree, state.CommitOptions{…}) // or store.Revert(ctx, tree)
//
// # Packages
//
// Each part is a package of its own; imports go downwards only:
//
//	history, maintenance, mirror   browse and restore; garbage collection, check, repair; a copy as ordinary files
//	state                          the verbs of tasks
//	repo                           versions in an object store: HEADs, manifests, commits, merges
//	tree                           a directory of this host: scan, materialise, diff
//	content                        packs: cache, fetch, upload
//	format                         the stored bytes, keys and encryption
//
// Object stores are below internal/objects: s3, mem (for tests), and heads with the head modes.
//
// # Atomicity
//
// A commit uploads packs, then the manifest, then swaps HEAD with a conditional PUT. Nothing is visible before the
// swap, everything is visible after it. One of two racing commits loses, merges per path onto the winner and tries
// again. A commit contains the id and the result of its task, so that if a worker dies between commit and
// report, the worker that takes over the task finds the commit ([Store.Applied]).
//
// # Trust
//
// The files of a tree were written by hostile programs, and a manifest may have been written by any process with access
// to the bucket. Files are reached through [os.Root] only, no symbolic link is followed out of the tree, paths are
// validated in both directions, and every blob is verified against its SHA-256.
//
// The package does not serialise tasks, know sandboxes, or speak HTTP.
package state
