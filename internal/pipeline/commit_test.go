package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/state"
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
