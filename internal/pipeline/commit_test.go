package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
	"github.com/codefleet/codefleet/schemas"
)

// TestListsOfFilesAreBounded truncates the lists of files in a result that are too long: by their number, and by the
// length of their paths.
func TestListsOfFilesAreBounded(t *testing.T) {
	for _, c := range []struct {
		name       string
		pathLength int
		files      int
		kept       int
	}{
		{"few", 20, 50, 50},
		{"many", 20, maxListed + 1, maxListed},
		{"long paths", 4096, 300, maxListedBytes / 4096},
		{"none", 0, 0, 0},
	} {
		w := schemas.WorkspaceChange{Generation: 7}
		var artifacts []schemas.Artifact
		for i := range c.files {
			path := fmt.Sprintf("%0*d", c.pathLength, i)
			w.Changed, w.Conflicts = append(w.Changed, path), append(w.Conflicts, path)
			artifacts = append(artifacts, schemas.Artifact{Path: path})
		}
		found := boundLists(&w, &artifacts)
		if len(w.Changed) != c.kept || len(w.Conflicts) != c.kept || len(artifacts) != c.kept {
			t.Errorf("%s: %d changed, %d conflicts and %d artifacts are kept, want %d of each", c.name, len(w.Changed),
				len(w.Conflicts), len(artifacts), c.kept)
		}
		if c.kept == c.files {
			if found != nil {
				t.Errorf("%s: findings = %+v, want none", c.name, found)
			}
			continue
		}
		want := fmt.Sprintf("changed lists the first %d of %d files; generation 7 of the workspace has all",
			c.kept, c.files)
		if len(found) != 3 || !strings.Contains(found[0].Message, want) {
			t.Errorf("%s: findings = %+v, want one for each list; the first: %s", c.name, found, want)
		}
	}
}

// TestArtifactsWithStrangeNames checks that artifacts have different paths in JSON: a file whose name is not UTF-8 is
// not an artifact, but named in a finding.
func TestArtifactsWithStrangeNames(t *testing.T) {
	rec := schemas.Record{TaskID: "t", Tenant: "acme", Workspace: "main"}
	w := statetest.NewWorker(t, mem.New(), refOf(rec), state.Options{})
	w.Checkout()
	for _, name := range []string{"artifacts/\xff", "artifacts/\ufffd", "artifacts/\n", "out/\xfe", "\xfd"} {
		w.Write(name, "text")
	}
	c := w.Commit("t")
	p := &Pipeline{Parts: Parts{Store: w.Store}}
	job := task{job: &jobs.Job{Record: rec, Task: schemas.Task{Artifacts: []string{"out/*"}}}, ref: refOf(rec)}
	got, found, err := p.artifacts(t.Context(), job,
		schemas.WorkspaceChange{Generation: c.Generation, Changed: c.Changed}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const mediaType, url = "application/octet-stream", "/v1/tasks/t/artifacts/artifacts/"
	if diff := cmp.Diff([]schemas.Artifact{
		{Path: "artifacts/\n", Bytes: 4, MediaType: mediaType, URL: url + "%0A"},
		{Path: "artifacts/\ufffd", Bytes: 4, MediaType: mediaType, URL: url + "%EF%BF%BD"},
	}, got); diff != "" {
		t.Errorf("artifacts() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]schemas.Finding{warning("result",
		`files whose names are not UTF-8 are not artifacts: "artifacts/\xff", "out/\xfe"`)}, found); diff != "" {
		t.Errorf("findings of artifacts() (-want +got):\n%s", diff)
	}
}

// TestEarlierResult reads the result of an earlier run: it lacks the views of sessions that the run wrote. A run of an
// older worker has not stored their names.
func TestEarlierResult(t *testing.T) {
	change := schemas.WorkspaceChange{Name: "main", Base: 6, Generation: 6}
	result := schemas.Result{Status: schemas.Succeeded, Result: json.RawMessage("7"), Workspace: change}
	old, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(committed{resultFields(result), []string{"sessions/s.json", currentSession}})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"a", "sessions", currentSession, "sessions/of-the-program.json", "sessions/s.json"}
	for _, c := range []struct {
		stored json.RawMessage
		want   []string
	}{{stored, []string{"a", "sessions/of-the-program.json"}}, {old, all}} {
		job := task{job: &jobs.Job{}}
		got, err := (&Pipeline{}).earlierResult(t.Context(), job, state.Commit{
			Generation: 7, Changed: slices.Clone(all), Result: c.stored,
		})
		if err != nil {
			t.Fatal(err)
		}
		want := result
		want.Workspace.Generation, want.Workspace.Changed = 7, c.want
		if diff := cmp.Diff(&want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("earlierResult of %s (-want +got):\n%s", c.stored, diff)
		}
	}
}

// TestArtifactPatternsAreBounded matches long names with patterns that take long to match.
func TestArtifactPatternsAreBounded(t *testing.T) {
	slow := artifactPatterns{}
	for range 100 {
		slow.patterns = append(slow.patterns, strings.Repeat("*a", 2000)+"b")
	}
	name := strings.Repeat("a", 4000)
	for range 20_000 {
		if slow.match(name) {
			t.Fatal("match() = true, want false")
		}
	}
	if slow.steps <= maxPatternSteps {
		t.Errorf("%d steps, want more than %d", slow.steps, maxPatternSteps)
	}
	usual := artifactPatterns{patterns: []string{"out/*.csv", "report.pdf"}}
	if !usual.match("out/a.csv") || !usual.match("report.pdf") || usual.match("out/b/a.csv") {
		t.Error("patterns do not match as path.Match does")
	}
}

// TestHintOfQuota checks that a larger quota is suggested only if one helps.
func TestHintOfQuota(t *testing.T) {
	for want, err := range map[string]error{
		"ask for a larger quota":     &state.QuotaError{What: "depth", Has: 65, Limit: 64},
		"no quota raises this limit": fmt.Errorf("scan: %w: a path is too deep", state.ErrQuota),
	} {
		if got := overQuota(err); !strings.Contains(got.Hint, want) || got.Message != err.Error() {
			t.Errorf("overQuota(%v) = %+v, want the message and a hint with %q", err, got, want)
		}
	}
}
