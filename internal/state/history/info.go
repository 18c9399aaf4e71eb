package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
	return Info{ref.Workspace, h.Generation, h.Commit, h.Time, h.Files, h.Bytes}
}

// Workspaces returns a tenant's workspaces, sorted by name, without deleted ones. It sends two small requests for each.
func Workspaces(ctx context.Context, r *repo.Repo, tenant string) ([]Info, error) {
	if err := names.Check("tenant", tenant); err != nil {
		return nil, err
	}
	var list []Info
	prefix := tenant + "/w/"
	after := ""
	for {
		name, err := nextWorkspace(ctx, r, prefix, after)
		if err != nil {
			return nil, fmt.Errorf("list workspaces of %s: %w", tenant, err)
		}
		if name == "" {
			slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
			return list, nil
		}
		after = prefix + name + "/~" // greater than all keys of the workspace
		ref := format.Ref{Tenant: tenant, Workspace: name}
		if ref.Check() != nil {
			continue
		}
		h, _, err := r.ReadHead(ctx, ref, "")
		if err != nil {
			return nil, fmt.Errorf("list workspaces of %s: %w", tenant, err)
		}
		if h.Manifest != nil {
			list = append(list, infoOf(ref, &h))
		}
	}
}

// nextWorkspace returns the name of the first workspace that has a key greater than after, or "".
func nextWorkspace(ctx context.Context, r *repo.Repo, prefix, after string) (string, error) {
	for o, err := range r.Bucket.List(ctx, prefix, after) {
		if err != nil {
			return "", err
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(o.Key, prefix), "/")
		return name, nil
	}
	return "", nil
}
