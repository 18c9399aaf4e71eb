// Package repo reads and commits versions of workspaces: HEADs, manifests, pins and the history that they form, in an
// object store. A [Repo] is one object store, a [Proposal] a commit to make.
//
// A commit uploads packs, then the manifest, then swaps HEAD (see Proposal.Run). Nothing is visible before the swap,
// everything is visible after it. The package knows no directories of the host: package state commits what a task did
// to a tree. The packages history, maintenance and mirror build on repo too.
package repo
