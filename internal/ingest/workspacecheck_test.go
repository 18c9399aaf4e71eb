package ingest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/state"
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
