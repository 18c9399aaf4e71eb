package storage

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/schemas"
)

// Artifacts returns a reader of artifacts, which it reads from the version that the task committed.
func Artifacts(store *state.Store) interface {
	Artifact(ctx context.Context, rec schemas.Record, path string) (io.ReadCloser, error)
} {
	return artifacts{store}
}

type artifacts struct{ store *state.Store }

func (a artifacts) Artifact(ctx context.Context, rec schemas.Record, path string) (io.ReadCloser, error) {
	ref := state.Ref{Tenant: rec.Tenant, Workspace: rec.Workspace}
	file, _, err := history.OpenRetained(ctx, a.store.Repo(), ref, rec.Result.Workspace.Generation, path)
	if errors.Is(err, state.ErrNotFound) {
		return nil, errors.Join(fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, err
	}
	return io.NopCloser(file), nil
}
