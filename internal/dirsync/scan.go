package dirsync

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
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

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/state/ignore"
)

// stat identifies a file's state. Unlike the modification time, the change time cannot be set back.
type stat struct {
	Inode uint64 `json:"ino"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // nanoseconds
	CTime int64  `json:"ctime"`
}

// racyMargin is the resolution of file system clocks: a file that changed less than this before it was scanned may
// change again without its times changing.
const racyMargin = 20 * time.Millisecond

// local describes one path of the directory.
type local struct {
	kind      string
	mode      uint32 // that of the workspace if the path has its LocalMode
	localMode uint32 // this LocalMode, or 0
	target    string
	stat      stat
}

// alwaysExcluded lists patterns of paths that are never synchronised, in addition to ignore.Defaults and
// .workspaceignore: files of this package, lost+found, and .git, through which a task could run programs on this host.
// Earlier versions wrote the base file under its name with .tmp first, and may have left that file behind.
const alwaysExcluded = ".git\n/lost+found\n" + BaseFileName + "\n" + BaseFileName + ".tmp\n" + DataDirMarker + "\n" +
	tempPrefix + "*\n"

// rules returns the patterns of paths that are not synchronised. If .workspaceignore is not a regular file, it has no
// patterns.
func (f *Folder) rules() (ignore.Rules, error) {
	var data []byte
	info, err := f.root.Lstat(ignore.FileName)
	if err == nil && info.Mode().IsRegular() {
		var file *os.File
		if file, err = f.open(ignore.FileName); err == nil {
			data, err = ignore.Read(file)
			file.Close()
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ignore.Rules{}, fmt.Errorf("read patterns of excluded paths: %w", err)
	}
	return ignore.Parse([]byte(strings.Join(ignore.Defaults, "\n")+"\n"+alwaysExcluded), data), nil
}

// scan returns the paths of the directory that rules do not exclude. skipped lists paths that a workspace cannot have.
// A path that still has its LocalMode is returned with the mode of the base.
func (f *Folder) scan(rules ignore.Rules) (found map[string]*local, skipped []string, err error) {
	found = map[string]*local{}
	err = fs.WalkDir(f.root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed during the scan
		case err != nil:
			return err
		case p == ".":
			return nil
		}
		skip := error(nil)
		if d.IsDir() {
			skip = fs.SkipDir
		}
		if rules.Match(p, d.IsDir()) {
			return skip
		}
		if !syncable(p) || d.IsDir() && f.isDataDir(p) {
			skipped = append(skipped, p)
			return skip
		}
		l, err := f.lstat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case l == nil:
			skipped = append(skipped, p)
			return skip
		}
		if k := f.base.Paths[p]; k != nil && l.kind == k.Kind && l.kind != Symlink && l.mode == k.LocalMode {
			l.mode, l.localMode = k.Mode, l.mode
		}
		found[p] = l
		return nil
	})
	return found, skipped, errors.Join(err, rules.Err())
}

// isDataDir reports whether a directory is the data directory of a fleet, which contains its credentials. Earlier
// versions of codefleet do not mark theirs, which have a lock besides. Files of the workspace do not count.
func (f *Folder) isDataDir(dir string) bool {
	if _, err := f.root.Lstat(path.Join(dir, DataDirMarker)); err == nil {
		return true
	}
	for _, name := range []string{"credentials.json", "lock"} {
		p := path.Join(dir, name)
		if info, err := f.root.Lstat(p); err != nil || !info.Mode().IsRegular() || f.base.Paths[p] != nil {
			return false
		}
	}
	return true
}

// syncable reports whether both sides can have a path: it must be clean, valid UTF-8 without control and format
// characters, within the length limits, and outside the directories that the fleet mounts for its tools. No component
// may name .git or a file of this package on a file system that ignores case or has short names. A replacement
// character stands for bytes that are not UTF-8, so a path with one does not name a file of the workspace.
func syncable(p string) bool {
	const maxName, maxPath = 255, 4096
	if first, _, _ := strings.Cut(p, "/"); first == "servers" || first == "client" {
		return false
	}
	refused := func(name string) bool {
		return len(name) > maxName || name != ".git" && LeadsToGit(name) || strings.EqualFold(name, DataDirMarker) ||
			strings.EqualFold(name, BaseFileName) || strings.HasPrefix(strings.ToLower(name), tempPrefix)
	}
	hidden := func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' ||
			r == unicode.ReplacementChar
	}
	return utf8.ValidString(p) && fs.ValidPath(p) && p != "." && len(p) <= maxPath &&
		!strings.ContainsFunc(p, hidden) && !slices.ContainsFunc(strings.Split(p, "/"), refused)
}

// LeadsToGit reports whether a path has a component that names .git, through which a task could run programs on this
// host, also on a file system that ignores case or invisible characters, or has short names.
func LeadsToGit(p string) bool {
	return slices.ContainsFunc(strings.Split(p, "/"), func(name string) bool {
		name = strings.Map(func(r rune) rune {
			if unicode.Is(unicode.Cf, r) {
				return -1
			}
			return r
		}, name)
		return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
	})
}

// lstat describes a path without following it. It returns nil for anything but files, directories and symbolic links.
func (f *Folder) lstat(p string) (*local, error) {
	info, err := f.root.Lstat(p)
	if err != nil {
		return nil, err
	}
	l := &local{mode: uint32(info.Mode().Perm())}
	switch {
	case info.IsDir():
		l.kind = Dir
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := f.root.Readlink(p)
		if err != nil {
			return nil, err
		}
		l.kind, l.target, l.mode = Symlink, target, 0o777
	case info.Mode().IsRegular():
		l.kind, l.stat = File, statOf(info)
	default:
		return nil, nil
	}
	return l, nil
}

func statOf(info fs.FileInfo) stat {
	s := stat{Size: info.Size(), MTime: clock.Nanos(info.ModTime())}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Inode, s.CTime = sys.Ino, ctime(sys)
	}
	return s
}

// open opens a regular file for reading. It does not block on pipes. A Root follows links despite O_NOFOLLOW, so open
// also looks at the path itself, which must name the file that is open: it may have been a link a moment before. The
// error is errChanging if the path does not name a regular file, or another one than a moment before.
func (f *Folder) open(p string) (*os.File, error) {
	file, err := f.root.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
	named, missing := f.root.Lstat(p)
	var info fs.FileInfo
	if err == nil {
		info, err = file.Stat()
	}
	gone := errors.Is(missing, fs.ErrNotExist) || errors.Is(missing, syscall.ENOTDIR)
	if gone || missing == nil && (!named.Mode().IsRegular() || err == nil && !os.SameFile(info, named)) {
		err = fmt.Errorf("%s: %w", p, errChanging)
	}
	err = cmp.Or(err, missing)
	if err != nil {
		file.Close() // file may be nil
		return nil, err
	}
	return file, nil
}

// holds reports whether a path of the directory, described by l, equals e.
func (f *Folder) holds(p string, l *local, e *FileInfo) (bool, error) {
	if l == nil || e == nil {
		return l == nil && e == nil, nil
	}
	if l.kind != e.Kind || l.target != e.Target || l.kind != Symlink && l.mode != e.Mode ||
		l.kind == File && l.stat.Size != e.Bytes {
		return false, nil
	}
	if l.kind != File {
		return true, nil
	}
	file, err := f.open(p)
	if errors.Is(err, errChanging) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	v := verifier{want: e}
	if _, err := io.Copy(&v, file); err != nil {
		return false, err
	}
	return v.ok(), nil
}

// changed reports whether a path of the directory, described by l, differs from the base. If only a file's stat
// differs, it records the new one. began is when the scan began.
func (f *Folder) changed(p string, l *local, began time.Time) (bool, error) {
	k := f.base.Paths[p]
	if k == nil || l == nil {
		return (k == nil) != (l == nil), nil
	}
	if l.kind == File && k.Kind == File && l.stat == k.Stat && l.mode == k.Mode && k.Stat != (stat{}) {
		return false, nil
	}
	same, err := f.holds(p, l, &k.FileInfo)
	if same {
		k.Stat = l.statAt(began)
	}
	return !same, err
}

// statAt returns the stat of a file, or zero for other kinds and if the file may have changed since the scan without
// changing its stat.
func (l *local) statAt(scan time.Time) stat {
	if l == nil || l.kind != File {
		return stat{}
	}
	return l.stat.unlessRacy(scan)
}

// unlessRacy returns s, or zero if the file may have changed after it was scanned without changing s.
func (s stat) unlessRacy(scanned time.Time) stat {
	limit := scanned.Add(-racyMargin).UnixNano()
	if s.CTime >= limit || s.MTime >= limit {
		return stat{}
	}
	return s
}

// verifier verifies that what is written to it is the content of a file.
type verifier struct {
	want  *FileInfo
	part  int    // number of parts begun
	left  int64  // bytes left in the current part
	sums  []byte // digests of complete parts
	total int64
	hash  hash.Hash // of the current part
	bad   bool
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
			v.sums = v.hash.Sum(v.sums)
			v.hash = nil
		}
	}
	return n, nil
}

// next begins the next part. A file without parts counts as one part.
func (v *verifier) next() {
	switch {
	case len(v.want.Parts) == 0 && v.part == 0:
		v.left = v.want.Bytes
	case v.part < len(v.want.Parts):
		v.left = v.want.Parts[v.part].Bytes
	}
	v.part++
	v.hash = sha256.New()
	v.bad = v.left <= 0 // more content than expected
}

// ok reports whether exactly the wanted content was written.
func (v *verifier) ok() bool {
	if v.bad || v.total != v.want.Bytes || v.hash != nil {
		return false
	}
	etag := v.sums
	if v.total == 0 || len(v.want.Parts) > 0 {
		sum := sha256.Sum256(v.sums)
		etag = sum[:]
	}
	return hex.EncodeToString(etag) == v.want.ETag
}

// pointsOutside reports whether l, which may be nil, is a symbolic link at p that points out of the directory.
func (l *local) pointsOutside(p string) bool { return l != nil && pointsOutside(p, l.kind, l.target) }

// pointsOutside reports whether a path is a symbolic link that points, or may point, out of the directory. After a
// name, ".." leads to an unknown place: the name may be another symbolic link.
func pointsOutside(p, kind, target string) bool {
	return kind == Symlink && (path.IsAbs(target) || upAfterName(target) ||
		!fs.ValidPath(path.Join(path.Dir(p), target)))
}

// upAfterName reports whether a path has the component ".." after a name.
func upAfterName(p string) bool {
	named := false
	for part := range strings.SplitSeq(p, "/") {
		switch part {
		case "", ".":
		case "..":
			if named {
				return true
			}
		default:
			named = true
		}
	}
	return false
}
