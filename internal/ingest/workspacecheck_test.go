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

// TestRepairOverHTTP: what is lost is named, a dry run changes nothing, and a repair brings back the rest.
func TestRepairOverHTTP(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	plain := map[string]string{"Content-Type": "application/json"}
	var packs []string
	for _, name := range []string{"a", "b"} {
		want(t, f, 200, nil, "PUT", main+"/files/"+name, nil, strings.Repeat(name, 100))
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
	want(t, f, 200, &found, "POST", main+"/check", plain, `{}`)
	if len(found.Problems) != 1 || !slices.Equal(found.Lost, []string{"b"}) {
		t.Errorf("check = %+v, want b lost", found)
	}
	type repaired struct {
		Commit         commit
		Problems, Lost []any
		Unknown        []int64
		Recovered      []string
	}
	for _, body := range []string{`{"dry_run": true}`, `{}`} {
		var done repaired
		want(t, f, 200, &done, "POST", main+"/repair", plain, body)
		if done.Commit.Generation != 3 || len(done.Lost) != 1 || done.Unknown == nil || done.Recovered == nil {
			t.Errorf("repair %s = %+v, want one path lost at generation 3", body, done)
		}
	}
	var list []state.FileInfo
	want(t, f, 200, &list, "GET", main+"/files", nil, "")
	if len(list) != 1 || list[0].Path != "a" {
		t.Errorf("files after the repair = %+v, want a", list)
	}
	var again repaired
	want(t, f, 200, &again, "POST", main+"/repair", plain, `{}`)
	if !again.Commit.NoChange {
		t.Errorf("repair again = %+v", again)
	}
}

// TestMirrorOverHTTP: a mirror that is to be made at once is there with the answer; without one the setting is named.
func TestMirrorOverHTTP(t *testing.T) {
	plain := map[string]string{"Content-Type": "application/json"}
	var refused struct{ Code, Hint string }
	want(t, ingesttest.Start(t, 0, nil), 404, &refused, "POST", main+"/mirror", plain, `{}`)
	if refused.Code != "no_mirror" || refused.Hint != "set workspaces.mirror" {
		t.Errorf("mirror without one = %+v", refused)
	}
	target := mem.New()
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Workspaces = state.New(mem.New(), state.Options{})
		o.Mirror = mirror.Follow(o.Workspaces.Repo(), target, mirror.Options{})
	})
	want(t, f, 200, nil, "PUT", main+"/files/a/b", nil, "text")
	var done mirror.Result
	want(t, f, 200, &done, "POST", main+"/mirror", plain, `{}`)
	var found []string
	for info, err := range target.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, info.Key[strings.IndexByte(info.Key, '/')+1:])
	}
	if !slices.Equal(found, []string{"main/files/a/b", "main/mirror.json"}) || done.Generation != 1 ||
		done.Skipped == nil {
		t.Errorf("mirror = %+v, with %v", done, found)
	}
}
