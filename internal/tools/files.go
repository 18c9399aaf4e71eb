package tools

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

type serverFiles struct{ files map[string]*cachedFile }

type cachedFile struct {
	stat        fileStat
	data        []byte
	sum         [32]byte
	sealed      bool // generated, and not edited since
	fn          function
	err         error              // from scanModule
	skipped     string             // why the content is not used
	definitions *parsedDefinitions // the content of DefinitionsFile
}

// parsedDefinitions is the parsed DefinitionsFile of a server, with what is derived from it.
type parsedDefinitions struct {
	Definitions
	err    error
	byFunc map[string]int // function → index in Tools
	hashes []string       // by index in Tools
	lint   []LintWarning
}

// fileStat tells whether a file may have changed since it was read.
type fileStat struct {
	size  int64
	mtime time.Time
	read  time.Time // when the file was read
}

// racyWindow is the resolution of modification times. A file that was read within this time after its last write may
// have changed again without a new modification time, so it is read again.
const racyWindow = 20 * time.Millisecond

func (s fileStat) unchanged(info fs.FileInfo) bool {
	return s.size == info.Size() && s.mtime.Equal(info.ModTime()) && s.read.Sub(s.mtime) > racyWindow
}

// Limits of files, in bytes.
const (
	maxModule      = 1 << 20
	maxDefinitions = 64 << 20 // bytes of DefinitionsFile, and of ApprovalsFile, which contains definitions
)

// refresh updates the cached files of one server. It needs no lock, because readServers starts one goroutine for each
// server.
func (s *serverFiles) refresh(root *os.Root, server string) (changed bool, err error) {
	root, err = root.OpenRoot(server)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return false, err
	}
	present := make(map[string]bool, len(entries))
	for _, e := range entries {
		name := e.Name()
		if name != DefinitionsFile && (!strings.HasSuffix(name, ".py") || strings.HasPrefix(name, ".")) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed in the meantime
		}
		if err != nil {
			return false, err
		}
		present[name] = true
		if s.refreshFile(root, name, info) {
			changed = true
		}
	}
	before := len(s.files)
	maps.DeleteFunc(s.files, func(name string, _ *cachedFile) bool { return !present[name] })
	return changed || len(s.files) < before, nil
}

// refreshFile reads one file again if it may have changed, and reports whether it has changed.
func (s *serverFiles) refreshFile(root *os.Root, name string, info fs.FileInfo) (changed bool) {
	old := s.files[name]
	if old != nil && old.stat.unchanged(info) {
		return false
	}
	next := readFile(root, name, info)
	if old != nil && old.sum == next.sum && old.skipped == next.skipped {
		old.stat = next.stat
		return false
	}
	next.interpret(name)
	s.files[name] = next
	return true
}

// interpret parses the file's content. The name says whether it contains the definitions or a module.
func (f *cachedFile) interpret(name string) {
	switch {
	case name == DefinitionsFile:
		f.definitions = parseDefinitions(f)
	case f.skipped == "" && !isHelper(name):
		f.parseModule(strings.TrimSuffix(name, ".py"))
	}
}

// isHelper reports whether a module's name begins with an underscore. Such a module is not a tool, but
// it is part of the catalogue: changing it makes a new version.
func isHelper(name string) bool { return strings.HasPrefix(name, "_") }

func readFile(root *os.Root, name string, info fs.FileInfo) *cachedFile {
	limit := int64(maxModule)
	if name == DefinitionsFile || name == ApprovalsFile {
		limit = maxDefinitions
	}
	f := &cachedFile{stat: fileStat{size: info.Size(), mtime: info.ModTime(), read: time.Now()}}
	switch {
	case !info.Mode().IsRegular():
		f.skipped = "not a regular file; symbolic links are not followed"
		return f
	case info.Size() > limit:
		f.skipped = fmt.Sprintf("larger than %d bytes", limit)
		return f
	}
	file, err := root.Open(name)
	if err != nil {
		// Perhaps permission is missing: chmod would not change the modification time, so read it again next time.
		f.skipped, f.stat.read = "cannot be read", time.Time{}
		return f
	}
	defer file.Close()
	data := make([]byte, info.Size()+1)
	n, err := io.ReadFull(file, data)
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) { // unreadable or grown: read it again next time
		f.skipped, f.stat.read = "cannot be read", time.Time{}
		return f
	}
	f.data, f.sum = data[:n], sha256.Sum256(data[:n])
	if !utf8.Valid(f.data) || bytes.IndexByte(f.data, 0) >= 0 {
		f.skipped = "not UTF-8 text"
	}
	return f
}

func (f *cachedFile) parseModule(name string) {
	header, sealed := readHeader(f.data)
	if f.sealed = sealed; sealed {
		f.fn = function{name: header.Function, signature: header.Signature, types: declaredTypes(f.data)}
		return
	}
	f.fn, f.err = scanModule(f.data, name)
}

// declaredTypes returns the classes of a generated module, which are between its line DEFINITION and its
// decorator @tool.
func declaredTypes(module []byte) string {
	_, rest, _ := bytes.Cut(module, []byte("\nDEFINITION = "))
	_, rest, _ = bytes.Cut(rest, []byte("\n"))
	types, _, _ := bytes.Cut(rest, []byte("\n@tool\n"))
	return strings.TrimSpace(strings.ReplaceAll(string(types), "\n\n\n", "\n\n"))
}

func parseDefinitions(f *cachedFile) *parsedDefinitions {
	p := &parsedDefinitions{byFunc: map[string]int{}}
	if f.skipped != "" {
		p.err = errors.New(f.skipped)
		return p
	}
	if p.err = json.Unmarshal(f.data, &p.Definitions); p.err != nil {
		return p
	}
	p.About = p.Sanitize() // the file may have been edited
	for i, d := range p.Tools {
		p.byFunc[p.Names[d.Name]] = i
		p.hashes = append(p.hashes, d.Hash())
		p.lint = append(p.lint, Lint(p.Server, d)...)
	}
	return p
}
