// Package rules writes programs without a model. It writes one only if a typed slot accounts for every content word of
// the task: a number, quoted text, a known place, a file name, a field, a table or a column, a tool and its parameters,
// or a word of the forms below. Otherwise its error names the words that it does not understand. It never guesses a
// value. What only the workspace knows (does the file exist, has the table this column) the written program checks
// before it writes anything, and it fails with a plain sentence.
//
// A task passes through token.go (tokens), clause.go (one request each), pattern.go (forms against tokens), slot.go
// (typed slots), the form tables (form*.go), writer.go (Python) and prelude.py (the functions of written programs).
// A new sentence is a row in a form table; a new kind of value is a slot.
package rules
