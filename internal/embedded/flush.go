package embedded

import (
	"errors"
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
}

func openFlusher(dir string, oneFile bool) (*flusher, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &flusher{root: root, oneFile: oneFile}
	f.all.flush = func() error { return f.flush(".", syncAll) }
	return f, nil
}

// Sync flushes the object at a request's path, and the directories above it, which may be new. Concurrent calls are not
// grouped unless they flush the whole file system: the kernel commits the files of concurrent calls together already.
func (f *flusher) Sync(urlPath string) error {
	name, err := url.PathUnescape(urlPath)
	if err != nil {
		return err
	}
	name = strings.Trim(name, "/")
	if !f.oneFile {
		return f.all.do()
	}
	for {
		if err := f.flush(name, (*os.File).Sync); err != nil {
			return err
		}
		if name == "." {
			return nil
		}
		name = path.Dir(name)
	}
}

func (f *flusher) flush(name string, sync func(*os.File) error) error {
	file, err := f.root.Open(name)
	if err != nil {
		return err
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
