// Package state stores workspaces: directory trees with a history, kept as immutable objects in an S3-compatible
// store, and shared by workers that store nothing themselves.
//
// A [Store] has the operations that tasks use. A [Tree] is a local directory that holds one version of a workspace. A
// task uses them like this:
//
//	tree, _ := store.Tree(dir, ref)            // once per directory and workspace
//	store.Checkout(ctx, tree, nil)             // dir holds the newest version
//	… the program runs in dir …
//	store.Commit(ctx, tree, state.CommitOptions{…}) // or store.Revert(ctx, tree)
//
// # Packages
//
// A package imports only packages further down in this table:
//
//	history, maintenance, mirror   browse and restore; garbage collection, check, repair; a copy as ordinary files
//	state                          the operations of tasks
//	repo                           versions in an object store: HEADs, manifests, commits, merges
//	tree                           a local directory: scan, materialise, diff
//	content                        packs: cache, fetch, upload
//	format                         the stored bytes, keys and encryption
//
// The packages s3 and mem (for tests) implement the interface of package objects; heads contains the head modes.
//
// # Atomicity
//
// A commit uploads packs and the manifest, and then swaps HEAD with a conditional PUT. Nothing is visible before the
// swap, and everything after it. HEAD itself may carry the objects of a small commit (see repo.Repo.Fold). If two
// commits race, the loser merges onto the winner, path by path, and tries again. A commit contains its task's id and
// result: if a worker dies between commit and report, the worker that takes over the task finds the commit
// ([Store.Applied]).
//
// # Trust
//
// The files of a tree may have been written by hostile programs, and a manifest by any process with access to the
// bucket. Files are reached through [os.Root] only, no symbolic link is followed out of the tree, paths are validated
// in both directions, and every blob is verified against its SHA-256.
//
// The package does not serialise tasks, and knows neither sandboxes nor HTTP.
package state
