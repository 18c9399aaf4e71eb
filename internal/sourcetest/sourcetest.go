// Package sourcetest finds the files of this repository, for tests of the source code and the documents.
package sourcetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// File is a Go file of the module.
type File struct {
	Path    string // relative to the root, with slashes
	Package string // the file's directory, relative to the root, with slashes
	Test    bool   // the name ends with _test.go
}

// Root returns the path of the module's root directory.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		err = fs.ErrNotExist
	}
	t.Fatalf("find go.mod: %v", err)
	return ""
}

// GoFiles returns the Go files of the module, in lexical order. It reads the directories itself, so that a new
// file makes `go test` run the test again. With the output of `go list`, the cached result would stay valid.
func GoFiles(t testing.TB) []File {
	t.Helper()
	root := Root(t)
	var files []File
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && skipped(path, d.Name()) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		rel = filepath.ToSlash(rel)
		files = append(files, File{
			Path: rel, Package: filepath.ToSlash(filepath.Dir(rel)), Test: strings.HasSuffix(rel, "_test.go"),
		})
		return err
	})
	if err != nil || len(files) < 100 {
		t.Fatalf("found %d Go files, %v, want at least 100", len(files), err)
	}
	return files
}

// skipped reports whether a directory contains no files of the module.
func skipped(path, name string) bool {
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || err == nil
}

// Parse returns the syntax tree of a file. Its positions have the path relative to the root.
func Parse(t testing.TB, f File, mode parser.Mode) (*token.FileSet, *ast.File) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(Root(t), f.Path))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, f.Path, data, mode)
	if err != nil {
		t.Fatal(err)
	}
	return set, tree
}
