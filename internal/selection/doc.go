// Package selection finds the few tools of a catalogue that a task needs.
//
// Build turns a catalogue into an immutable Index; Index.Select ranks its tools for one or several queries. Both are
// pure: no network, no clock, no randomness; the same input gives the same order. The ranking is lexical first (BM25
// over fields, with literal rules, stop words, a directional synonym table and spelling neighbours). Word vectors
// computed from WordNet's glosses and the tenant's History of tasks and their tools add to it. Hybrid fuses the local
// list with a list by embeddings of a remote model; it never replaces the local list, so selection does not fail
// because of a network.
//
// It is not a planner: it does not decide arguments. It does not hide tools for safety: the broker decides who may call
// what.
//
// Files: terms (words of texts), gloss (vectors), index.go (the analysed catalogue), postings.go (BM25F), rank.go (the
// sum of signals), select.go (cut-off, groups, confidence), history.go, hybrid.go and openai.go (embeddings), lint.go.
// test/selectioneval measures the selection over data sets.
package selection
