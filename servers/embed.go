// Package servers embeds the tool modules that ship with the fleet: calculator and weather, generated from
// the MCP servers of package builtin, and filesystem and database, hand-written modules that act on the
// workspace in the box.
package servers

import (
	"bytes"
	"cmp"
	"embed"
	"io/fs"
	"os"
	"path/filepath"
)

// FS has the paths of a servers directory.
//
//go:embed *.py *.json */*.py */*.json */*.md
var FS embed.FS

// Support is the content of __init__.py, which all packages and generated modules import. It needs Python
// 3.9 and the standard library only.
//
//go:embed __init__.py
var Support []byte

// Install writes the shipped files into a servers directory if they are missing or differ there. It does not change
// an existing approvals.json, nor files that are not shipped.
func Install(dir string) error {
	return fs.WalkDir(FS, ".", func(name string, e fs.DirEntry, err error) error {
		target := filepath.Join(dir, filepath.FromSlash(name))
		if err != nil || e.IsDir() {
			return cmp.Or(err, os.MkdirAll(target, 0o755))
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
