package repo_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// file returns a change that writes an empty file. The mode tells versions apart.
func file(path string, mode uint32) format.Change {
	return format.Change{Path: path, Entry: &format.Entry{Path: path, Kind: format.KindFile, Mode: mode}}
}

// parents returns the changes that make the directories of path.
func parents(path string) (changes []format.Change) {
	for d := format.ParentDir(path); d != ""; d = format.ParentDir(d) {
		changes = append(changes, dir(d))
	}
	return changes
}

// TestConflictCopies checks the names of the copies that KeepBoth makes: they are valid paths, other processes can read
// the version, and no copy replaces another path.
func TestConflictCopies(t *testing.T) {
	task := strings.Repeat("t", format.MaxTaskID)
	suffix := ".conflict-" + task
	long := strings.Repeat("x", format.MaxComponent-1)
	deep := strings.Repeat(strings.Repeat("d", 99)+"/", 40) // 4000 bytes
	stem := func(name string) string { return name[:format.MaxComponent-len(suffix)-len(".2000000")] }
	for name, c := range map[string]struct {
		conflicts, theirs, ours []string // paths that both change, and paths that only one side adds
		copies                  []string
	}{
		"short":  {[]string{"a"}, nil, nil, []string{"a" + suffix}},
		"theirs": {[]string{"a"}, []string{"a" + suffix}, nil, []string{"a" + suffix + ".2"}},
		"ours":   {[]string{"a"}, nil, []string{"a" + suffix}, []string{"a" + suffix + ".2"}},
		"equal stems": {
			[]string{long + "1", long + "2"},
			nil, nil,
			[]string{stem(long) + suffix, stem(long) + suffix + ".2"},
		},
		"runes":     {[]string{strings.Repeat("ü", 120)}, nil, nil, []string{strings.Repeat("ü", 90) + suffix}},
		"long path": {[]string{deep + "file"}, nil, nil, []string{deep + "file" + suffix}},
		"longest path": {
			[]string{deep + strings.Repeat("f", 96)}, nil, nil, []string{deep + strings.Repeat("f", 22) + suffix},
		},
		"no room in the directory": {
			[]string{deep + strings.Repeat("e", 60) + "/f"}, nil, nil, []string{deep + "f" + suffix},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bucket := mem.New()
			open := func() *repo.Repo { return repo.New(bucket, repo.Options{Log: slog.New(slog.DiscardHandler)}) }
			r := open()
			run := func(on *repo.Version, mode uint32, only []string) error {
				t.Helper()
				changes := parents(c.conflicts[0])
				for _, path := range c.conflicts {
					changes = append(changes, file(path, mode))
				}
				for _, path := range only {
					changes = append(changes, file(path, mode))
				}
				format.SortChanges(changes)
				p := &repo.Proposal{
					Repo: r, Ref: ref, Options: repo.CommitOptions{TaskID: fmt.Sprint(task[:50], mode), KeepBoth: true},
					Base: on, On: on, Changes: changes,
				}
				if mode == 0o600 {
					p.Options.TaskID = task
				}
				_, _, err := p.Run(t.Context())
				return err
			}
			base := newest(t, r)
			for _, err := range []error{run(base, 0o644, c.theirs), run(base, 0o600, c.ours)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			v, err := open().Current(t.Context(), ref, nil)
			if err != nil {
				t.Fatalf("Current() of another process = %.200v, want nil", err)
			}
			var copies []string
			for _, e := range v.Set.Entries {
				if strings.Contains(e.Path, suffix) && e.Mode == 0o600 && !slices.Contains(c.ours, e.Path) {
					copies = append(copies, e.Path)
				}
				if !utf8.ValidString(e.Path) {
					t.Errorf("path %q is not UTF-8", e.Path)
				}
			}
			if diff := cmp.Diff(c.copies, copies); diff != "" {
				t.Errorf("copies (-want +got):\n%s", diff)
			}
			for _, path := range c.theirs {
				if e := v.Set.Find(path); e == nil || e.Mode != 0o644 {
					t.Errorf("%s = %+v, want theirs", path, e)
				}
			}
			for _, path := range c.ours {
				if e := v.Set.Find(path); e == nil || e.Mode != 0o600 {
					t.Errorf("%s = %+v, want ours", path, e)
				}
			}
		})
	}
}
