// Package arch contains only tests: that packages follow the import rules, and that the documents refer to
// existing tests, commands and files. Add a new package to the table of arch_test.go first.
package arch
