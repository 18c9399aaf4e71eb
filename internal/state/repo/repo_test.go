package repo_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/repo"
)

var ref = format.Ref{Tenant: "acme", Workspace: "main"}

func dir(path string) format.Change {
	return format.Change{Path: path, Entry: format.NewDir(path)}
}

func newest(t *testing.T, r *repo.Repo) *repo.Version {
	t.Helper()
	v, err := r.Current(t.Context(), ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestProposals checks that of two proposals on one version the second is merged, and that it fails if both change the
// same path.
func TestProposals(t *testing.T) {
	bucket := mem.New()
	open := func() *repo.Repo { return repo.New(bucket, repo.Options{Log: slog.New(slog.DiscardHandler)}) }
	a, b := open(), open()
	var notified []format.Ref
	a.Subscribe(func(r format.Ref) { notified = append(notified, r) })
	base, late := newest(t, a), newest(t, b)
	propose := func(r *repo.Repo, base *repo.Version, task string, c format.Change) (repo.Commit, error) {
		p := &repo.Proposal{
			Repo: r, Ref: ref, Options: repo.CommitOptions{TaskID: task}, Base: base, On: base,
			Changes: []format.Change{c},
		}
		commit, _, err := p.Run(t.Context())
		return commit, err
	}
	if c, err := propose(a, base, "first", dir("a")); err != nil || c.Generation != 1 {
		t.Fatalf("Run() = %+v, %v, want generation 1", c, err)
	}
	if c, err := propose(b, late, "second", dir("b")); err != nil || c.Generation != 2 {
		t.Fatalf("Run() on an older version = %+v, %v, want generation 2", c, err)
	}
	v := newest(t, a)
	if diff := cmp.Diff([]string{"a", "b"}, format.ChangedPaths(format.EmptySet.Diff(v.Set))); diff != "" {
		t.Errorf("merged paths (-want +got):\n%s", diff)
	}
	file := format.Change{Path: "a", Entry: &format.Entry{Path: "a", Kind: format.KindFile, Mode: 0o644}}
	if c, err := propose(b, late, "third", file); !errors.As(err, new(*repo.ConflictError)) {
		t.Errorf("Run() of a conflict = %+v, %v, want a ConflictError", c, err)
	}
	if diff := cmp.Diff([]format.Ref{ref}, notified); diff != "" {
		t.Errorf("subscribers of one repo (-want +got):\n%s", diff)
	}
	if err := bucket.Violations(); err != nil {
		t.Error(err)
	}
}

// TestFirstProposalsAboveFloor checks that two proposals on a new workspace are merged if its tenant has a floor.
func TestFirstProposalsAboveFloor(t *testing.T) {
	r := repo.New(mem.New(), repo.Options{Log: slog.New(slog.DiscardHandler)})
	if err := r.RaiseFloor(t.Context(), ref.Tenant, 5); err != nil {
		t.Fatal(err)
	}
	base := newest(t, r)
	for i, path := range []string{"a", "b"} {
		p := &repo.Proposal{Repo: r, Ref: ref, Base: base, On: base, Changes: []format.Change{dir(path)}}
		if c, _, err := p.Run(t.Context()); err != nil || c.Generation != int64(6+i) {
			t.Errorf("Run() with path %s = %+v, %v, want generation %d", path, c, err, 6+i)
		}
	}
	if v := newest(t, r); v.Set.Files != 2 {
		t.Errorf("the newest version has %d paths, want 2", v.Set.Files)
	}
}
