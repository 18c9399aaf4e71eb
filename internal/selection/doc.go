// Package selection finds the few tools of a catalogue that a task needs.
//
// Build turns a catalogue into an immutable Index, and Index.Select ranks its tools for one or several queries. Both
// are pure: they use no network, clock or randomness, and the same input gives the same order. The ranking is mainly
// lexical: BM25 over fields, with rules for literals, stop words, a directional synonym table and spelling neighbours.
// A tool whose name has a different operation from the query (create, read, update, delete) ranks lower. Word vectors
// that were computed from WordNet's glosses, and the tenant's History of tasks, add to the score. Hybrid fuses this
// local list with a list by a remote model's embeddings. It never replaces the local list, so that selection does not
// fail because of the network.
//
// The package chooses no arguments. It does not hide tools for safety: the broker decides who may call which tool.
//
// Files: terms (index terms of texts), gloss (word vectors), index.go (the analysed catalogue), postings.go (BM25F),
// operations.go and opposites.go (what queries request and tools do), rank.go (the sum of the signals), select.go
// (cut-off, groups, confidence), history.go, hybrid.go and openai.go (embeddings), lint.go. test/selectioneval measures
// the selection over data sets.
package selection
