package dirsync

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/state/ignore"
)

// stat identifies the state of a file. Programs cannot set back the change time.
type stat struct {
	Inode uint64 `json:"ino"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // nanoseconds
	CTime int64  `json:"ctime"`
}

// racyMargin is the resolution of file system clocks: a file that changed less than this before it was scanned may
// change
// again without its times changing.
const racyMargin = 20 * time.Millisecond

// local is one path of the directory.
type local struct {
	kind   string
	mode   uint32
	target string
	stat   stat
}

// alwaysExcluded are never synchronised, beside ignore.Defaults and .workspaceignore: files of this package, mount
// points
// of the fleet, and .git, with which a task could run programs on this host.
const alwaysExcluded = ".git\n/lost+found\n" + MemoryFile + "\n" + tempPrefix + "*\n"

func (f *Folder) rules() ignore.Rules {
	text := strings.Join(ignore.Defaults, "\n") + "\n" + alwaysExcluded
	if file, err := f.open(ignore.FileName); err == nil {
		own, err := io.ReadAll(io.LimitReader(file, ignore.MaxFile))
		file.Close()
		if err == nil {
			text += string(own)
		}
	}
	return ignore.Parse([]byte(text))
}

// scan scans the directory. skipped are paths that a workspace cannot have.
func (f *Folder) scan(rules ignore.Rules) (found map[string]*local, skipped []string, err error) {
	found = map[string]*local{}
	err = fs.WalkDir(f.root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile
		case err != nil:
			return err
		case p == ".":
			return nil
		}
		out := error(nil)
		if d.IsDir() {
			out = fs.SkipDir
		}
		if rules.Match(p, d.IsDir()) {
			return out
		}
		if !exchangeable(p) {
			skipped = append(skipped, p)
			return out
		}
		l, err := f.lstat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case l == nil:
			skipped = append(skipped, p)
			return out
		}
		found[p] = l
		return nil
	})
	return found, skipped, err
}

// exchangeable reports whether both sides can have a path: valid UTF-8 without control and direction characters, clean,
// within the limits of length, and not below a name that the fleet uses for its tools.
func exchangeable(p string) bool {
	const maxName, maxPath = 255, 4096
	if first, _, _ := strings.Cut(p, "/"); first == "servers" || first == "client" {
		return false
	}
	long := func(name string) bool { return len(name) > maxName }
	hidden := func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
	}
	return utf8.ValidString(p) && fs.ValidPath(p) && p != "." && len(p) <= maxPath &&
		!strings.ContainsFunc(p, hidden) && !slices.ContainsFunc(strings.Split(p, "/"), long)
}

// lstat returns a path without following it; nil: it is neither a file nor a directory nor a symbolic link.
func (f *Folder) lstat(p string) (*local, error) {
	info, err := f.root.Lstat(p)
	if err != nil {
		return nil, err
	}
	return f.local(p, info)
}

func (f *Folder) local(p string, info fs.FileInfo) (*local, error) {
	l := &local{mode: uint32(info.Mode().Perm())}
	switch {
	case info.IsDir():
		l.kind = Dir
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := f.root.Readlink(p)
		if err != nil {
			return nil, err
		}
		l.kind, l.target, l.mode = Link, target, 0o777
	case info.Mode().IsRegular():
		l.kind, l.stat = File, statOf(info)
	default:
		return nil, nil
	}
	return l, nil
}

func statOf(info fs.FileInfo) stat {
	s := stat{Size: info.Size(), MTime: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Inode, s.CTime = sys.Ino, ctime(sys)
	}
	return s
}

// open opens a regular file. It does not block on pipes.
func (f *Folder) open(p string) (*os.File, error) {
	file, err := f.root.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %q: not a regular file", p)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// holds reports whether a path of the directory equals e.
func (f *Folder) holds(p string, l *local, e *Entry) (bool, error) {
	if l == nil || e == nil {
		return l == nil && e == nil, nil
	}
	if l.kind != e.Kind || l.target != e.Target || l.kind != Link && l.mode != e.Mode ||
		l.kind == File && l.stat.Size != e.Bytes {
		return false, nil
	}
	if l.kind != File {
		return true, nil
	}
	file, err := f.open(p)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	v := verifier{entry: e}
	if _, err := io.Copy(&v, file); err != nil {
		return false, err
	}
	return v.ok(), nil
}

// changed reports whether a path of the directory differs from the base. If only the stat of a file differs, it records
// the new one.
func (f *Folder) changed(p string, l *local, began time.Time) (bool, error) {
	k := f.base.Paths[p]
	if k == nil || l == nil {
		return (k == nil) != (l == nil), nil
	}
	if l.kind == File && k.Kind == File && l.stat == k.Stat && l.mode == k.Mode && k.Stat != (stat{}) {
		return false, nil
	}
	same, err := f.holds(p, l, &k.Entry)
	if same {
		k.Stat = l.stat.unlessRacy(began)
	}
	return !same, err
}

// unlessRacy returns s, or the zero value if the file may change without changing s.
func (s stat) unlessRacy(scanned time.Time) stat {
	limit := scanned.Add(-racyMargin).UnixNano()
	if s.CTime >= limit || s.MTime >= limit {
		return stat{}
	}
	return s
}

// verifier verifies that what is written to it is the content of an entry.
type verifier struct {
	entry *Entry
	part  int
	left  int64 // of the part
	sum   []byte
	total int64
	hash  interface {
		io.Writer
		Sum(b []byte) []byte
	}
	bad bool
}

// Write implements io.Writer.
func (v *verifier) Write(b []byte) (int, error) {
	n := len(b)
	v.total += int64(n)
	for len(b) > 0 && !v.bad {
		if v.hash == nil {
			v.next()
			continue
		}
		chunk := b[:min(int64(len(b)), v.left)]
		_, _ = v.hash.Write(chunk) // never fails
		b, v.left = b[len(chunk):], v.left-int64(len(chunk))
		if v.left == 0 {
			v.sum = v.hash.Sum(v.sum)
			v.hash = nil
		}
	}
	return n, nil
}

// next begins the next part; a small file has one part.
func (v *verifier) next() {
	switch {
	case len(v.entry.Parts) == 0 && v.part == 0:
		v.left = v.entry.Bytes
	case v.part < len(v.entry.Parts):
		v.left = v.entry.Parts[v.part].Bytes
	}
	v.part++
	v.hash = sha256.New()
	v.bad = v.left <= 0 // more content than expected
}

// ok reports whether exactly the content was written.
func (v *verifier) ok() bool {
	if v.bad || v.total != v.entry.Bytes || v.hash != nil {
		return false
	}
	if v.total == 0 || len(v.entry.Parts) > 0 {
		sum := sha256.Sum256(v.sum)
		return hex.EncodeToString(sum[:]) == v.entry.ETag
	}
	return hex.EncodeToString(v.sum) == v.entry.ETag
}

// leadsOut reports whether a symbolic link points out of the directory.
func leadsOut(e *Entry) bool {
	return path.IsAbs(e.Target) || !fs.ValidPath(path.Clean(path.Join(path.Dir(e.Path), e.Target)))
}
