// Package arch holds the import rules of the project as a test, and nothing else. A new package is
// put into its table first.
package arch
