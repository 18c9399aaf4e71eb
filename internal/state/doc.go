// Package state keeps workspaces: directory trees with a history, stored as
// immutable objects in any S3, shared by workers that keep nothing.
//
// A [Store] sits on an object store ([Objects]: state/s3, or state/mem for
// tests) and a local cache. A [Tree] is a directory of this host that holds one
// version of one workspace. A task's life with it:
//
//	tree, _ := store.Tree(dir, ref)      // once per directory and workspace
//	store.Checkout(ctx, tree, nil)            // dir is exactly the newest version
//	… the program runs in dir …
//	store.Commit(ctx, tree, change)      // or store.Revert(ctx, tree)
//
// # Objects
//
//	<tenant>/p/<hh>/<sha256>             pack: blobs (files, or chunks of large ones) and their index
//	<tenant>/w/<ws>/m/<generation>-<id>  manifest of one commit: every path (full), or what changed (delta)
//	<tenant>/w/<ws>/HEAD                 which manifest is the newest; the only object that ever changes
//	<tenant>/w/<ws>/pins                 versions that are kept for good
//	<tenant>/w/<ws>/k/<generation>-<until>  a version that somebody was promised until a time
//	<tenant>/floor/HEAD                  the last generation of workspaces that are forgotten
//	<tenant>/gc/<run>                    what a collection marked for deletion
//
// A mirror of plain files, where there is one, is in a place of its own, see [Mirror].
//
// # Atomicity
//
// A commit uploads packs, then the manifest, then swaps HEAD with a conditional
// PUT. Nothing is visible before the swap, everything is visible after it, and
// one of two racing commits loses, merges per path onto the winner and tries
// again. The task's id and result travel in the commit, so that whoever takes
// over a task that died between the commit and its report finds it [Store.Applied].
//
// # Trust
//
// The content of a tree was written by hostile programs, and a manifest may have
// been written by anybody who can write to the bucket. Files are reached through
// [os.Root] only, links are never followed, paths are validated in both
// directions, and every blob is verified against its SHA-256.
//
// The package does not serialise tasks, know sandboxes, or speak HTTP.
package state
