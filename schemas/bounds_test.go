package schemas

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestLargeDocuments checks that a document with many violations is refused before they are collected.
func TestLargeDocuments(t *testing.T) {
	list := func(n int, element string) string { return "[" + strings.Repeat(element+",", n-1) + element + "]" }
	nested := `{}`
	for range 1000 {
		nested = `{"steps":[{"workflow":` + nested + `}]}`
	}
	members := strings.Builder{}
	for i := range 1000 {
		fmt.Fprintf(&members, `,"a-%d":1`, i)
	}
	large := list(200, `{"workflow":{"steps":`+list(200, `{}`)+`}}`)
	for _, c := range []struct{ schema, data, path, message string }{
		{TaskV1, `{"code":"x","files":` + list(400_000, "{}") + `}`, "/files", "maxItems: got 400000, want 1000"},
		{TaskV1, `{"code":"x","retry":{"on":` + list(400_000, "1") + `}}`, "/retry/on", "maxItems: got 400000, want 2"},
		{TaskV1, `{"code":"x","env":{"A":""` + members.String() + `}}`, "/env", "maxProperties: got 1001, want 64"},
		{WorkflowV1, `{"steps":` + list(400_000, "{}") + `}`, "/steps", "maxItems: got 400000, want 200"},
		{WorkflowV1, `{"steps":` + large + `}`, "/steps/98/workflow/steps/101", "more than 20000 values"},
		{WorkflowV1, nested, strings.Repeat("/steps/0/workflow", 21) + "/steps/0", "more than 64 levels"},
		{
			WorkflowV1, `{"steps":[{"options":{"files":` + list(1001, "{}") + `}}]}`, "/steps/0/options/files",
			"maxItems: got 1001, want 1000",
		},
	} {
		err := Validate(c.schema, []byte(c.data))
		invalid, ok := errors.AsType[*InvalidError](err)
		if !ok || len(invalid.At) != 1 || invalid.At[0].Path != c.path ||
			!strings.Contains(invalid.At[0].Message, c.message) {
			t.Errorf("Validate(%s, %.40s…) = %.300s, want one violation at %s: %s",
				c.schema, c.data, fmt.Sprint(err), c.path, c.message)
		}
	}
}

// TestFreeValues checks that values which the schema leaves free may be large.
func TestFreeValues(t *testing.T) {
	values := `[` + strings.Repeat(`{},`, 30_000) + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `]`
	for _, data := range []string{
		`{"code":"x","inputs":` + values + `}`, `{"workflow":{"steps":` + values + `}}`,
	} {
		if err := Validate(TaskV1, []byte(data)); err != nil {
			t.Errorf("Validate(%.40s…) = %.300s, want nil", data, err)
		}
	}
	data := `{"name":"w","steps":[{"id":"a","code":"x","with":` + values + `}]}`
	if err := Validate(WorkflowV1, []byte(data)); err != nil {
		t.Errorf("Validate(%.40s…) = %.300s, want nil", data, err)
	}
}

// TestViolationsAreBounded checks that an error lists a few of many violations, and the beginnings of long texts.
func TestViolationsAreBounded(t *testing.T) {
	err := Validate(TaskV1, []byte(`{"code":"x","files":[`+strings.Repeat("{},", 999)+`{}]}`))
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok || len(invalid.At) != maxListed+1 || !strings.HasPrefix(invalid.At[0].Path, "/files/0") {
		t.Fatalf("Validate of 1000 files = %.300s, want %d violations and one line", fmt.Sprint(err), maxListed)
	}
	if want := (Invalid{Message: "there are other violations: these are the first"}); invalid.At[maxListed] != want {
		t.Errorf("the last line = %+v, want %+v", invalid.At[maxListed], want)
	}
	long := strings.Repeat("x", 100_000)
	for _, data := range []string{
		`{"code":"x","pool":"` + long + `"}`, `{"code":"x","not_before":"` + long + `"}`,
		`{"code":"x","env":{"` + long + `-":""}}`, `{"code":"x","` + long + `":1}`,
	} {
		if err := Validate(TaskV1, []byte(data)); err == nil || len(err.Error()) > 2*maxInvalidText+10 {
			t.Errorf("Validate(%.30s…) = %.100s…, want an error of a few hundred bytes", data, fmt.Sprint(err))
		}
	}
}

// TestListsHaveLimits checks that the schemas of documents that users write limit each list and object whose elements
// they restrict: measure relies on it.
func TestListsHaveLimits(t *testing.T) {
	all, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	var unlimited []string
	seen := map[*jsonschema.Schema]bool{}
	var visit func(s *jsonschema.Schema)
	visit = func(s *jsonschema.Schema) {
		if s == nil || seen[s] {
			return
		}
		seen[s] = true
		more, open := s.AdditionalProperties.(*jsonschema.Schema)
		if s.Items2020 != nil && s.MaxItems == nil || open && s.MaxProperties == nil || s.PatternProperties != nil {
			unlimited = append(unlimited, s.Location)
		}
		visit(s.Ref)
		visit(s.Items2020)
		visit(more)
		for _, p := range s.Properties {
			visit(p)
		}
	}
	for schema := range userWritten {
		visit(all[schema])
	}
	if d := cmp.Diff([]string(nil), unlimited); d != "" || len(seen) < 50 {
		t.Errorf("schemas without maxItems or maxProperties (-want +got), of %d:\n%s", len(seen), d)
	}
}
