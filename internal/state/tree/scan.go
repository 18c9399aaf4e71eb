package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/state/format"
)

// stat identifies a path's state. Unlike the modification time, the change time cannot be set back.
type stat struct {
	Kind        format.Kind
	Mode        uint32
	Size        int64
	MTime       int64 // nanoseconds
	CTime       int64 // nanoseconds
	Inode       uint64
	UID         uint32
	Unversioned bool // it has other hard links, or mode bits that versions do not store
}

// access returns the permissions that a path's owner has in every version. A program may take them away, but a worker
// that is not root could then neither read nor remove the path.
func (s stat) access() uint32 {
	switch s.Kind {
	case format.KindDir:
		return 0o700
	case format.KindFile:
		return 0o400
	default:
		return 0
	}
}

// racyMargin is the resolution of file system clocks: a file that changed less than this before it was scanned may
// change again without its times changing.
const racyMargin = 20 * time.Millisecond

// racy reports whether a file, which was scanned at a time, may change without changing s.
func (s stat) racy(scanned time.Time) bool {
	limit := scanned.Add(-racyMargin).UnixNano()
	return s.Kind == format.KindFile && (s.CTime >= limit || s.MTime >= limit)
}

// scannedPath is a path that a scan found.
type scannedPath struct {
	path string
	stat stat
}

// scanResult is the outcome of a scan.
type scanResult struct {
	found    []scannedPath // not sorted
	excluded []string
	large    []string // directories above largeDirectory
}

// largeDirectory is the size in bytes above which a directory may have grown, see Dir.Grown.
const largeDirectory = 1 << 20

const (
	scanWorkers = 4
	scanBatch   = 1024   // names that are read from a directory at once
	scanMargin  = 10_000 // paths beyond twice the quota that a scan may find
	longPath    = 256    // a path counts once, and once more for each so many bytes of its directory's path
)

// scanner walks a tree with several goroutines. It never follows symbolic links.
type scanner struct {
	root  *os.Root
	skip  func(path string, dir bool) bool
	limit int64        // how many paths may be seen
	seen  atomic.Int64 // paths that were found or excluded

	mu     sync.Mutex
	wake   sync.Cond
	queue  []string // directories to read
	active int      // directories that are being read
	out    scanResult
	err    error
}

// scan returns all paths below root. A path for which skip returns true counts as excluded. A program can make many
// more paths than this process has memory for, so the scan fails once it has seen far more than a quota of files.
func scan(root *os.Root, files int, skip func(path string, dir bool) bool) (scanResult, error) {
	sc := &scanner{root: root, skip: skip, limit: 2*int64(files) + scanMargin, queue: []string{"."}}
	sc.wake.L = &sc.mu
	var wg sync.WaitGroup
	for range scanWorkers {
		wg.Go(sc.work)
	}
	wg.Wait()
	return sc.out, sc.err
}

// work reads directories from the queue until it is empty and no other goroutine can add to it.
func (sc *scanner) work() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for {
		for len(sc.queue) == 0 && sc.active > 0 && sc.err == nil {
			sc.wake.Wait()
		}
		if len(sc.queue) == 0 || sc.err != nil {
			sc.wake.Broadcast()
			return
		}
		dir := sc.queue[len(sc.queue)-1]
		sc.queue = sc.queue[:len(sc.queue)-1]
		sc.active++
		sc.mu.Unlock()
		part, dirs, err := sc.readDir(dir)
		sc.mu.Lock()
		sc.active--
		if sc.err == nil {
			sc.err = err
		}
		sc.out.found = append(sc.out.found, part.found...)
		sc.out.excluded = append(sc.out.excluded, part.excluded...)
		sc.out.large = append(sc.out.large, part.large...)
		sc.queue = append(sc.queue, dirs...)
		sc.wake.Broadcast()
	}
}

// readDir returns what is in a directory; dirs are the directories to read next. It gives owners the permissions of
// stat.access that a program has taken away.
func (sc *scanner) readDir(dir string) (out scanResult, dirs []string, err error) {
	f, err := sc.root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return out, nil, fmt.Errorf("scan: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return out, nil, fmt.Errorf("scan: %w", err)
	}
	if info.Size() > largeDirectory {
		out.large = append(out.large, dir)
	}
	for {
		names, err := f.Readdirnames(scanBatch)
		if sc.seen.Add(int64(len(names)*(1+len(dir)/longPath))) > sc.limit {
			return out, nil, format.OverLimit(fmt.Errorf("there are more than %d paths; excluded paths count, and "+
				"long ones count several times: remove files that are not needed", sc.limit))
		}
		for _, name := range names {
			path := name
			if dir != "." {
				path = dir + "/" + name
			}
			st, err := statAt(f, name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if needed := st.access(); err == nil && st.Mode&needed != needed {
				_ = sc.root.Chmod(path, os.FileMode(st.Mode|needed)) // an error shows when the path is read
				st, err = statAt(f, name)
			}
			if err != nil {
				return out, nil, fmt.Errorf("scan %q: %w", path, err)
			}
			if sc.skip(path, st.Kind == format.KindDir) {
				out.excluded = append(out.excluded, path)
				continue
			}
			if err := format.CheckPath(path); err != nil {
				return out, nil, format.OverLimit(err)
			}
			out.found = append(out.found, scannedPath{path, st})
			if st.Kind == format.KindDir {
				dirs = append(dirs, path)
			}
		}
		if errors.Is(err, io.EOF) {
			return out, dirs, nil
		}
		if err != nil {
			return out, nil, fmt.Errorf("scan: %w", err)
		}
	}
}

// statAt returns the stat of a name in an open directory. It does not follow symbolic links.
func statAt(dir *os.File, name string) (stat, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return stat{}, err
	}
	return fromUnix(&st), nil
}

func statFile(f *os.File) (stat, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return stat{}, err
	}
	return fromUnix(&st), nil
}

func fromUnix(st *unix.Stat_t) stat {
	s := stat{
		Kind: format.KindOther, Mode: uint32(st.Mode) & 0o777, Size: st.Size, //nolint:unconvert // 16 bits on darwin
		MTime: clock.Nanos(time.Unix(st.Mtim.Unix())), CTime: st.Ctim.Nano(), Inode: st.Ino, UID: st.Uid,
		Unversioned: st.Mode&0o7000 != 0,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.Kind = format.KindFile
	case unix.S_IFDIR:
		// A directory's size and times change with its content, so they do not count.
		return stat{Kind: format.KindDir, Mode: s.Mode, UID: s.UID, Unversioned: s.Unversioned}
	case unix.S_IFLNK:
		s.Kind = format.KindSymlink
	}
	s.Unversioned = s.Unversioned || st.Nlink > 1
	return s
}
