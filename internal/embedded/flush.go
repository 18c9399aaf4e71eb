package embedded

import (
	"errors"
	"maps"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
)

// flusher flushes objects to disk.
type flusher struct {
	root *os.Root
	// oneFile means that an object is one file. Otherwise its attributes are in files outside of root, and Sync flushes
	// the whole file system.
	oneFile bool
	all     sharedFlush // flushes the whole file system
	sync    func(*os.File) error

	mu sync.Mutex
	// named are the directories whose names are on disk: a flush of the directory above would change nothing.
	named map[string]identity
}

// identity tells a directory from others that had or will have its name. It is zero if the file system does not tell.
type identity struct {
	inode   uint64
	created int64 // nanoseconds since 1970
}

const maxNamed = 10_000 // directories in memory

func openFlusher(dir string, oneFile bool) (*flusher, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &flusher{root: root, oneFile: oneFile, sync: (*os.File).Sync, named: map[string]identity{}}
	f.all.flush = func() error { return f.flush(".", syncAll, nil) }
	return f, nil
}

// Sync flushes the object at a request's path, and the directories above it as far as they may be new. Concurrent calls
// are not grouped unless they flush the whole file system: the kernel commits the files of concurrent calls together
// already.
func (f *flusher) Sync(urlPath string) error {
	name, err := url.PathUnescape(urlPath)
	if err != nil {
		return err
	}
	name = strings.Trim(name, "/")
	if !f.oneFile {
		return f.all.do()
	}
	if err := f.flush(name, f.sync, nil); err != nil {
		return err
	}
	flushed := map[string]identity{}
	for name != "." {
		name = path.Dir(name)
		var id identity
		if err := f.flush(name, f.sync, &id); err != nil {
			return err
		}
		if f.isNamed(name, id) {
			break
		}
		flushed[name] = id
	}
	f.setNamed(flushed)
	return nil
}

// isNamed reports whether the name of a directory is on disk, with the names of those above it.
func (f *flusher) isNamed(name string, id identity) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return id != identity{} && f.named[name] == id
}

// setNamed records directories whose names were flushed.
func (f *flusher) setNamed(flushed map[string]identity) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.named)+len(flushed) > maxNamed {
		clear(f.named)
	}
	maps.Copy(f.named, flushed)
}

// flush flushes a file or a directory, and sets id, unless it is nil, to its identity.
func (f *flusher) flush(name string, sync func(*os.File) error, id *identity) error {
	file, err := f.root.Open(name)
	if err != nil {
		return err
	}
	if id != nil {
		*id = identityOf(file)
	}
	return errors.Join(sync(file), file.Close())
}

func (f *flusher) Close() error { return f.root.Close() }

// sharedFlush runs one flush at a time. Callers that wait while one runs share the next one.
type sharedFlush struct {
	flush func() error

	turn sync.Mutex // held during a flush
	mu   sync.Mutex
	next *flushGroup // waits for its turn; nil if no caller waits
}

// flushGroup is the callers of one flush.
type flushGroup struct {
	callers int
	done    chan struct{}
	err     error // set before done is closed
}

// do returns after a flush that began after the call.
func (s *sharedFlush) do() error {
	s.mu.Lock()
	g := s.next
	if g == nil {
		g = &flushGroup{done: make(chan struct{})}
		s.next = g
	}
	g.callers++
	first := g.callers == 1
	s.mu.Unlock()
	if first {
		s.run(g)
	}
	<-g.done
	return g.err
}

// run flushes for the callers of g, after the current flush has ended.
func (s *sharedFlush) run(g *flushGroup) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	s.next = nil // later callers need another flush: this one may miss what they have written
	s.mu.Unlock()
	g.err = s.flush()
	close(g.done)
}
