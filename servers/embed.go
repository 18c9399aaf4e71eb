// Package servers is the tree of tool modules that ships with the fleet: calculator and weather,
// generated from the MCP servers of package builtin, and filesystem and database, written by hand,
// which act on the workspace from inside the box.
package servers

import (
	"bytes"
	"embed"
	"io/fs"
	"os"
	"path/filepath"
)

// FS holds the tree, with paths as below a servers directory.
//
//go:embed *.py *.json */*.py */*.json */*.md
var FS embed.FS

// Support is __init__.py: what every server's package and every generated module needs. It is the
// standard library only, from Python 3.9.
//
//go:embed __init__.py
var Support []byte

// Install brings the shipped files into a servers directory: what is missing or differs is written,
// everything else there is left alone, and so are approvals that exist already.
func Install(dir string) error {
	return fs.WalkDir(FS, ".", func(name string, e fs.DirEntry, err error) error {
		target := filepath.Join(dir, filepath.FromSlash(name))
		if err != nil || e.IsDir() {
			return cmpErr(err, os.MkdirAll(target, 0o755))
		}
		data, err := FS.ReadFile(name)
		if err != nil {
			return err
		}
		was, err := os.ReadFile(target)
		if err == nil && (name == "approvals.json" || bytes.Equal(was, data)) {
			return nil
		}
		return os.WriteFile(target, data, 0o644)
	})
}

func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
