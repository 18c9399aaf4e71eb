package tools

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"
)

type serverFiles struct{ files map[string]*cachedFile }

type cachedFile struct {
	stat    fileStat
	data    []byte
	sum     [32]byte
	header  Header
	sealed  bool
	fn      function
	err     error  // of scanModule
	skipped string // why the file was not read
	index   *parsedIndex
}

// parsedIndex caches what is derived from an Index.
type parsedIndex struct {
	Index
	err    error
	byFunc map[string]int // into Tools
	hashes []string
	lint   []Finding
}

type fileStat struct {
	size  int64
	mtime time.Time
	read  time.Time
}

// racyWindow is the resolution of modification times: a file read so soon after its last write may
// change without a new modification time.
const racyWindow = 20 * time.Millisecond

func (s fileStat) unchanged(info fs.FileInfo) bool {
	return s.size == info.Size() && s.mtime.Equal(info.ModTime()) && s.read.Sub(s.mtime) > racyWindow
}

const (
	maxModule = 1 << 20
	maxIndex  = 64 << 20
)

// refresh updates the cached files of one server. Only one goroutine of readServers refreshes a server.
func (s *serverFiles) refresh(root *os.Root, server string) (changed bool, err error) {
	root, err = root.OpenRoot(server)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	dir, err := root.Open(".")
	if err != nil {
		return false, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return false, err
	}
	present := make(map[string]bool, len(entries))
	for _, e := range entries {
		name := e.Name()
		if name != IndexFile && (!strings.HasSuffix(name, ".py") || strings.HasPrefix(name, ".")) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return false, err
		}
		present[name] = true
		if s.refreshFile(root, name, info) {
			changed = true
		}
	}
	for name := range s.files {
		if !present[name] {
			delete(s.files, name)
			changed = true
		}
	}
	return changed, nil
}

// refreshFile reads one file if it may have changed, and reports whether it did.
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

// interpret parses the content of a file with this name.
func (f *cachedFile) interpret(name string) {
	switch {
	case name == IndexFile:
		f.index = parseIndex(f)
	case f.skipped == "" && !isHelper(name):
		f.parseModule(strings.TrimSuffix(name, ".py"))
	}
}

// isHelper reports whether a module begins with an underscore. Such modules are not tools, but part of
// the catalogue: changing one makes a new version.
func isHelper(name string) bool { return strings.HasPrefix(name, "_") }

func readFile(root *os.Root, name string, info fs.FileInfo) *cachedFile {
	limit := int64(maxModule)
	if path.Base(name) == IndexFile || path.Base(name) == ApprovalsFile {
		limit = maxIndex
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
		f.skipped = "cannot be read"
		return f
	}
	defer file.Close()
	data := make([]byte, info.Size()+1)
	n, err := io.ReadFull(file, data)
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) { // unreadable, or it grew: read it next time
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
	if f.header, f.sealed = readHeader(f.data); f.sealed {
		f.fn = function{name: f.header.Function, signature: f.header.Signature}
		return
	}
	f.fn, f.err = scanModule(f.data, name)
}

func parseIndex(f *cachedFile) *parsedIndex {
	p := &parsedIndex{byFunc: map[string]int{}}
	if f.skipped != "" {
		p.err = errors.New(f.skipped)
		return p
	}
	if p.err = json.Unmarshal(f.data, &p.Index); p.err != nil {
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
