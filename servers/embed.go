// Package servers embeds the built-in tool modules: calculator and weather, which are generated from the MCP servers of
// package builtin, and filesystem and database, which are hand-written and use the workspace in the box.
package servers

import (
	"bytes"
	"cmp"
	"embed"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// FS contains the files of a servers directory.
//
//go:embed *.py *.json */*.py */*.json */*.md
var FS embed.FS

// Support is the content of __init__.py, which all packages and generated modules import. It needs only the standard
// library of Python 3.9.
//
//go:embed __init__.py
var Support []byte

// Install writes the built-in files into a servers directory if they are missing or different there. It changes neither
// an existing approvals.json nor files that are not built in, nor the modules of the MCP servers in replaced, which
// belong to other servers of the same names.
func Install(dir string, replaced ...string) error {
	return fs.WalkDir(FS, ".", func(name string, e fs.DirEntry, err error) error {
		target := filepath.Join(dir, filepath.FromSlash(name))
		if err == nil && e.IsDir() && slices.Contains(replaced, name) {
			if _, err := fs.Stat(FS, path.Join(name, "definitions.json")); err == nil {
				return fs.SkipDir
			}
		}
		if err != nil || e.IsDir() {
			return cmp.Or(err, os.MkdirAll(target, 0o755))
		}
		data, err := FS.ReadFile(name)
		if err != nil {
			return err
		}
		current, err := os.ReadFile(target)
		if err == nil && (name == "approvals.json" || bytes.Equal(current, data)) {
			return nil
		}
		return os.WriteFile(target, data, 0o644)
	})
}
