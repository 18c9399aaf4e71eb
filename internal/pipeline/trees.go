package pipeline

import (
	"sync"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/state"
)

// trees keeps the open tree of each box, by box id, so that the next task in the box checks out only the
// differences. The pool closes a tree when it destroys the box. The zero value is empty.
type trees struct {
	mu    sync.Mutex
	byBox map[string]boxTree
}

type boxTree struct {
	ref  state.Ref
	tree *state.Tree
}

// open returns the tree of ref in the box's directory. It reuses the open tree, or replaces that of
// another workspace.
func (s *trees) open(store *state.Store, box *executor.AcquiredBox, ref state.Ref) (*state.Tree, error) {
	id := box.BoxID()
	s.mu.Lock()
	held, known := s.byBox[id]
	s.mu.Unlock()
	if known && held.ref == ref {
		return held.tree, nil
	}
	if !known {
		box.OnDestroy(func() error { return s.close(id) })
	} else if err := held.tree.Close(); err != nil {
		return nil, err
	}
	tree, err := store.Tree(box.Dir(), ref)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byBox == nil {
		s.byBox = map[string]boxTree{}
	}
	s.byBox[id] = boxTree{ref, tree}
	return tree, nil
}

func (s *trees) close(id string) error {
	s.mu.Lock()
	held, known := s.byBox[id]
	delete(s.byBox, id)
	s.mu.Unlock()
	if !known {
		return nil
	}
	return held.tree.Close()
}
