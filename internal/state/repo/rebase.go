package repo

import (
	"bytes"
	"context"
	"errors"

	"github.com/codefleet/codefleet/internal/state/format"
)

// Rebase merges Changes onto On. It returns a *ConflictError if both sides changed a path and their changes do not
// merge, unless Options.KeepBoth is set.
func (p *Proposal) Rebase(ctx context.Context) error {
	if err := p.waitStored(); err != nil { // a merge reads content
		return err
	}
	packer := p.Repo.NewPacker(ctx, p.Ref.Tenant, p.On.Set.BlobFinder(0))
	m := &merger{
		base: p.Base.Set, theirs: p.On.Set, suffix: p.Options.TaskID, document: p.Repo.Options.StateFile,
		views: p.Views,
		read:  func(e *format.Entry) ([]byte, error) { return p.Repo.ReadFile(ctx, p.Ref.Tenant, e) },
		write: func(e *format.Entry, data []byte) (*format.Entry, error) {
			blobs, err := packer.AddFile(bytes.NewReader(data), int64(len(data)), make([]byte, len(data)), nil)
			out := *e
			out.Blobs, out.Size = blobs, int64(len(data))
			return &out, err
		},
	}
	changes, conflicts, err := m.merge(p.Changes)
	if err = errors.Join(err, packer.Finish()); err != nil {
		return err
	}
	if len(conflicts) > 0 && !p.Options.KeepBoth {
		return &ConflictError{Ref: p.Ref, Paths: conflicts}
	}
	p.changes, p.conflicts, p.Merged = changes, conflicts, true
	return nil
}
