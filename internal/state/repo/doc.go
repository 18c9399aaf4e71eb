// Package repo reads and commits versions of workspaces in an object store: HEADs, manifests, pins and the history that
// they form. A [Repo] is one object store; a [Proposal] is a commit to make.
//
// A commit uploads packs and the manifest, and then swaps HEAD (see [Proposal.Run]). Nothing is visible before the
// swap, and everything after it. HEAD itself may carry the objects of a small commit (see [Repo.Fold]). The package
// knows nothing of local directories: package state commits what a task changed in a tree. The packages history,
// maintenance and mirror build on repo too.
package repo
