package ingest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/mirror"
)

// TestRepairOverHTTP checks that check and repair name the lost paths, that a dry run changes nothing, and that a
// repair restores the other paths.
func TestRepairOverHTTP(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	var packs []string
	for _, name := range []string{"a", "b"} {
		wantStatus(t, f, 200, nil, "PUT", main+"/files/"+name, nil, strings.Repeat(name, 100))
		for info, err := range f.Objects.List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(info.Key, "/p/") && !slices.Contains(packs, info.Key) {
				packs = append(packs, info.Key)
			}
		}
	}
	f.Objects.Damage(packs[1], func([]byte) []byte { return nil })
	var found struct{ Problems, Lost []string }
	wantStatus(t, f, 200, &found, "POST", main+"/check", jsonType, `{}`)
	if len(found.Problems) != 1 || !slices.Equal(found.Lost, []string{"b"}) {
		t.Errorf("check = %+v, want one problem and b lost", found)
	}
	type repaired struct {
		Commit         commit
		Problems, Lost []any
		Unknown        []int64
		Recovered      []string
	}
	for _, body := range []string{`{"dry_run": true}`, `{}`} {
		var done repaired
		wantStatus(t, f, 200, &done, "POST", main+"/repair", jsonType, body)
		if done.Commit.Generation != 3 || len(done.Lost) != 1 || done.Unknown == nil || done.Recovered == nil {
			t.Errorf("repair %s = %+v, want one path lost at generation 3", body, done)
		}
	}
	var list []state.FileInfo
	wantStatus(t, f, 200, &list, "GET", main+"/files", nil, "")
	if len(list) != 1 || list[0].Path != "a" {
		t.Errorf("files after the repair = %+v, want only a", list)
	}
	var again repaired
	wantStatus(t, f, 200, &again, "POST", main+"/repair", jsonType, `{}`)
	if !again.Commit.NoChange {
		t.Errorf("second repair = %+v, want no change", again)
	}
}

// TestMirrorOverHTTP checks that the mirror is up to date when the response arrives, and that the error of a fleet
// without a mirror names the setting.
func TestMirrorOverHTTP(t *testing.T) {
	var refused struct{ Code, Hint string }
	wantStatus(t, ingesttest.Start(t, 0, nil), 404, &refused, "POST", main+"/mirror", nil, "")
	if refused.Code != "no_mirror" || refused.Hint != "set workspaces.mirror" {
		t.Errorf("POST /mirror without a mirror = %+v, want no_mirror with a hint", refused)
	}
	target := mem.New()
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Workspaces = state.New(mem.New(), state.Options{})
		o.Mirror = mirror.Follow(o.Workspaces.Repo(), target, mirror.Options{})
	})
	wantStatus(t, f, 200, nil, "PUT", main+"/files/a/b", nil, "text")
	var done mirror.Result
	wantStatus(t, f, 200, &done, "POST", main+"/mirror", nil, "")
	var found []string
	for info, err := range target.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, info.Key[strings.IndexByte(info.Key, '/')+1:])
	}
	if !slices.Equal(found, []string{"main/files/a/b", "main/mirror.json"}) || done.Generation != 1 ||
		done.Skipped == nil {
		t.Errorf("POST /mirror = %+v, and the mirror has %v, want a file and the marker of generation 1", done, found)
	}
}
