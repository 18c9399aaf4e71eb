package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// Info describes a workspace.
type Info struct {
	Name       string    `json:"name"`
	Generation int64     `json:"generation"` // the newest generation; 0 if there is none
	Commit     string    `json:"commit,omitempty"`
	Time       time.Time `json:"time,omitzero"` // time of the newest commit
	Files      int       `json:"files"`         // files, directories and symbolic links
	Bytes      int64     `json:"bytes"`
	Deleted    bool      `json:"deleted,omitempty"` // the newest generation is the deletion
}

// ReadInfo describes a workspace by its HEAD. It sends one small request, and sometimes two more if there is no HEAD. A
// workspace that has no commits or was deleted has no files. ReadInfo returns objects.ErrCorrupt if HEAD is lost.
func ReadInfo(ctx context.Context, r *repo.Repo, ref format.Ref) (Info, error) {
	if err := ref.Check(); err != nil {
		return Info{}, err
	}
	h, _, err := r.FindHead(ctx, ref)
	if err != nil {
		return Info{}, fmt.Errorf("read workspace %s: %w", ref, err)
	}
	return infoOf(ref, &h), nil
}

func infoOf(ref format.Ref, h *format.Head) Info {
	return Info{ref.Workspace, h.Generation, h.Commit, h.Time, h.Files, h.Bytes, h.Deleted}
}

// Workspaces returns a tenant's workspaces, sorted by name, without deleted ones. Deleted workspaces have objects for a
// while, so it sends a small request for each of them, too.
func Workspaces(ctx context.Context, r *repo.Repo, tenant string) ([]Info, error) {
	if err := names.Check("tenant", tenant); err != nil {
		return nil, err
	}
	found, err := workspaceNames(ctx, r, tenant+"/w/")
	if err != nil {
		return nil, fmt.Errorf("list workspaces of %s: %w", tenant, err)
	}
	infos := make([]Info, len(found))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(listParallel)
	for i, name := range found {
		group.Go(func() error {
			ref := format.Ref{Tenant: tenant, Workspace: name}
			h, _, err := r.ReadHead(gctx, ref, "")
			if err == nil && h.Manifest != nil {
				infos[i] = infoOf(ref, &h)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("list workspaces of %s: %w", tenant, err)
	}
	infos = slices.DeleteFunc(infos, func(i Info) bool { return i.Name == "" })
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}

const (
	listParallel = 8   // HEADs that are read at the same time
	maxListed    = 200 // objects of one workspace that a listing reads before it starts again after the workspace
)

// workspaceNames returns the names of the workspaces that have objects below prefix. A workspace may have very many
// objects, so the rest of them are skipped after maxListed. Not sooner, because there may be many workspaces with few
// objects, and to start a listing again costs the store much more than to list a few more objects.
func workspaceNames(ctx context.Context, r *repo.Repo, prefix string) (found []string, err error) {
	after, last, listed := "", "", 0
	for again := true; again; {
		again = false
		for o, err := range r.Bucket.List(ctx, prefix, after) {
			if err != nil {
				return nil, err
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(o.Key, prefix), "/")
			if name != last {
				last, listed = name, 0
				if (format.Ref{Tenant: "t", Workspace: name}).Check() == nil {
					found = append(found, name)
				}
				continue
			}
			if listed++; listed == maxListed {
				after, again = prefix+name+"/~", true // greater than all keys of the workspace
				break
			}
		}
	}
	return found, nil
}
