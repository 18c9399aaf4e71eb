package history_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/repo"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestLargeCommit checks that other processes can read a commit whose changed paths are longer than a header may be,
// and that its log lists them.
func TestLargeCommit(t *testing.T) {
	const files = 40_000
	bucket := mem.New()
	r := statetest.Committed(t, bucket, 1).Store.Repo()
	on, err := r.Current(t.Context(), ref, nil)
	statetest.Must(t, err)
	p := &repo.Proposal{Repo: r, Ref: ref, Options: repo.CommitOptions{TaskID: "large"}, Base: on, On: on}
	for i := range files {
		path := fmt.Sprintf("%s%06d", strings.Repeat("x", 240), i)
		p.Changes = append(p.Changes, format.Change{
			Path: path, Entry: &format.Entry{Path: path, Kind: format.KindFile, Mode: 0o644},
		})
	}
	_, _, err = p.Run(t.Context())
	statetest.Must(t, err)

	fresh := func() *repo.Repo { return state.New(bucket, state.Options{}).Repo() }
	if l, err := fresh().Find(t.Context(), ref, 0); err != nil || l.Set.Files != files+2 {
		t.Fatalf("Find() by another process = %+v, %v, want %d paths", l, err, files+2)
	}
	log, err := history.Log(t.Context(), fresh(), ref, 0)
	if err != nil || len(log) != 2 || len(log[0].Changed) != files || log[0].Changed[9] != p.Changes[9].Path {
		t.Errorf("Log() = %d commits, %v, want 2, of which the first changed %d paths", len(log), err, files)
	}
	h, _, err := fresh().FindHead(t.Context(), ref)
	statetest.Must(t, err)
	c, err := fresh().FindTask(t.Context(), ref, h, "large", nil)
	if err != nil || c == nil || len(c.Changed) != files {
		t.Errorf("FindTask() = %v, want the commit that changed %d paths", err, files)
	}
	_, err = maintenance.CollectGarbage(t.Context(), fresh(), "acme", maintenance.GCOptions{})
	statetest.Must(t, err)
}
