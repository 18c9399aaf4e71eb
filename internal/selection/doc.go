// Package selection finds the few tools of a catalogue that a task needs.
//
// Build turns a catalogue into an immutable Snapshot; Snapshot.Select ranks it for one or several queries. Both are
// pure: no network, no clock, no randomness; the same input gives the same order. The ranking is lexical first
// (BM25 over fields, with literal rules, stop words, a directional synonym table and spelling neighbours), helped by
// word vectors computed from WordNet's glosses and by the tenant's own History of tasks and the tools that really ran.
// Hybrid adds embeddings of a remote model when there are any; they are fused with the local list and never replace it,
// so selection does not fail because of a network.
//
// What it is not: a planner. It never decides which arguments a tool gets, and it hides nothing for safety's sake:
// who may call what is the broker's affair.
//
// Where things are: text (terms), gloss (vectors), index.go (BM25F), rank.go (the sum of signals), select.go (cut-off,
// groups, confidence), history.go, hybrid.go and openai.go (embeddings), lint.go; test/selectioneval measures it over data sets.
package selection
