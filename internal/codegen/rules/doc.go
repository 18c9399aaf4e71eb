// Package rules writes programs without a model. It writes one only if a typed slot accounts for every content word of
// the task: a number, quoted text, a known place, a file name, a field, a table or a column, a tool and its parameters,
// or a word of its grammar. Otherwise its error names the words that it does not understand. It never guesses a value.
// The written program itself checks what the task cannot tell, such as whether a file exists or a table has a column.
// If a check fails, the program fails with a short sentence.
//
// A task passes through token.go (tokens), clause.go (one request each), match.go (the forms of grammar.txt against a
// clause), slot.go, place.go and arithmetic.go (typed slots), action.go and tool.go (what a form writes) and writer.go
// (the program, with the functions of prelude.py that it uses). A new sentence is a form in grammar.txt, with its
// outcome in testdata/sentences.txt. A new kind of value is a slot.
package rules
