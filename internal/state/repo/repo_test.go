package repo_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/repo"
	"github.com/codefleet/codefleet/internal/state/statetest"
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

// TestMergeOfManyRemovals merges the removal of a large tree with a commit that adds a file to one of its directories.
// Time in proportion to the product of the numbers of directories and changes would be a minute; it must be of the
// order of the time that the tree's creation takes.
func TestMergeOfManyRemovals(t *testing.T) {
	r := repo.New(mem.New(), repo.Options{Log: slog.New(slog.DiscardHandler)})
	propose := func(base *repo.Version, task string, changes ...format.Change) {
		t.Helper()
		p := &repo.Proposal{
			Repo: r, Ref: ref, Options: repo.CommitOptions{TaskID: task}, Base: base, On: base, Changes: changes,
		}
		if _, _, err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	create := []format.Change{dir("d")}
	for i := range 50_000 {
		create = append(create, dir(fmt.Sprintf("d/%06d", i)))
	}
	start := time.Now()
	propose(newest(t, r), "create", create...)
	created := time.Since(start)
	base := newest(t, r)
	propose(base, "add", file("d/000007/new", 0o644))
	remove := make([]format.Change, len(create))
	for i, c := range create {
		remove[i].Path = c.Path
	}
	start = time.Now()
	propose(base, "remove", append(remove, file("e", 0o644))...)
	if took := time.Since(start); took > 20*created {
		t.Errorf("the merge took %v, want less than 20 times the %v of the creation", took, created)
	}
	want := []string{"d", "d/000007", "d/000007/new", "e"}
	if diff := cmp.Diff(want, format.ChangedPaths(format.EmptySet.Diff(newest(t, r).Set))); diff != "" {
		t.Errorf("merged paths (-want +got):\n%s", diff)
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

// TestLateProposal checks that a commit fails if so much time has passed since it began that garbage collection may
// have removed what it stored. The time counts from Began, and otherwise from the call of Run.
func TestLateProposal(t *testing.T) {
	for name, c := range map[string]struct {
		began, upload time.Duration // before Run, and during it
		late          bool
	}{
		"quick": {0, time.Minute, false}, "slow": {0, 11 * time.Hour, false}, "late": {0, 13 * time.Hour, true},
		"began early": {7 * time.Hour, 6 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket := mem.New()
				r := repo.New(bucket, repo.Options{Log: slog.New(slog.DiscardHandler)})
				base := newest(t, r)
				began := time.Now()
				statetest.Advance(t, c.began)
				p := &repo.Proposal{
					Repo: r, Ref: ref, Base: base, On: base, Changes: []format.Change{dir("a")}, Began: began,
					Stored: func() error { statetest.Advance(t, c.upload); return nil },
				}
				_, _, err := p.Run(t.Context())
				if c.late != errors.Is(err, objects.ErrTemporary) || !c.late && err != nil {
					t.Errorf("Run() = %v, want an error %v: %v", err, objects.ErrTemporary, c.late)
				}
				if v := newest(t, r); (v.Head.Generation == 0) != c.late {
					t.Errorf("generation %d is stored, want it only if the commit was not late", v.Head.Generation)
				}
			})
		})
	}
}
