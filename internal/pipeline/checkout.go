package pipeline

import (
	"context"
	"encoding/base64"
	"fmt"
	"sync"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/schemas"
)

// checkout is a workspace that was checked out into a box.
type checkout struct {
	tree       *state.Tree
	generation int64
	session    *executor.TaskSession // nil if the task has no session
	views      []string              // files with views of sessions
	ms         float64
}

// checkout writes the newest version of the workspace into the box, and then the task's files and the view of its
// session.
func (p *Pipeline) checkout(ctx context.Context, s steps, b box) (c checkout, err error) {
	defer measure(&c.ms)()
	ctx, span := p.Tracer.Start(ctx, "workspace.checkout")
	defer span.End()
	defer func() { err = p.handleFullDisk(ctx, b.AcquiredBox, err) }()
	if c.tree, err = p.trees.open(p.Store, b.AcquiredBox, s.task.ref); err != nil {
		return c, err
	}
	var head *state.Prefetched
	if len(s.attempts) == 0 { // in later attempts, the prefetched HEAD may be outdated
		head = s.task.head(ctx)
	}
	version, err := p.Store.Checkout(ctx, c.tree, head)
	if err != nil {
		return c, fmt.Errorf("check out workspace %s: %w", s.task.ref, withCause(ctx, err))
	}
	c.generation = version.Generation
	if err := writeFiles(s.task.job.Task.Files, c.tree); err != nil {
		return c, err
	}
	if err := p.writeSession(ctx, s.task, &c); err != nil {
		return c, err
	}
	return c, b.CheckDisk()
}

// writeFiles writes the files of the task into the workspace.
func writeFiles(files []schemas.File, tree *state.Tree) error {
	for i, f := range files {
		data, err := content(f)
		if err == nil {
			err = tree.WriteFile(f.Name, data, 0o644)
		}
		if isDiskFull(err) {
			return fmt.Errorf("write the task's files: %w", err)
		}
		if err != nil {
			return &schemas.Error{
				Code: errcode.BadFile, Message: fmt.Sprintf("/files/%d: %v", i, err),
				Hint: "a name is a relative path within the workspace, such as data/in.csv; " +
					"servers, client and lost+found belong to the fleet, and no version has what is below " +
					"__pycache__, .venv and node_modules",
			}
		}
	}
	return nil
}

func content(f schemas.File) ([]byte, error) {
	if f.Base64 != nil {
		return base64.StdEncoding.DecodeString(*f.Base64)
	}
	return []byte(*f.Text), nil
}

// trees keeps each box's open tree, so that the next task in the box checks out only the differences. The
// pool closes a tree when it destroys the box. The zero value is empty.
type trees struct {
	mu    sync.Mutex
	byBox map[string]boxTree // by box id
}

type boxTree struct {
	ref  state.Ref
	tree *state.Tree
}

// open returns the tree of ref in the box's directory. It reuses the box's open tree, or replaces it if it
// belongs to another workspace.
func (s *trees) open(store *state.Store, box *executor.AcquiredBox, ref state.Ref) (*state.Tree, error) {
	id := box.BoxID()
	s.mu.Lock()
	held, ok := s.byBox[id]
	s.mu.Unlock()
	if ok && held.ref == ref {
		return held.tree, nil
	}
	if !ok {
		box.OnDestroy(func() error { return s.close(id) })
	} else if err := held.tree.Close(); err != nil {
		return nil, err
	}
	tree, err := store.Tree(box.Dir(), ref)
	if err != nil {
		return nil, err
	}
	tree.Watch(box.WatchDisk())
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
	held, ok := s.byBox[id]
	delete(s.byBox, id)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	return held.tree.Close()
}
