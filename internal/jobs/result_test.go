package jobs

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// boundedElsewhere are the text fields of a result that slim does not truncate, each with its bound in bytes. They
// come from the record, from settings, or from a closed set of values.
var boundedElsewhere = map[string]int{
	"TaskID": 26, "Tenant": 63, "Session": 63, "Source": maxAttribute, "EventID": maxAttribute, "TraceID": 32,
	"Status": 16, "GeneratedBy": 16, "Worker": 256, "Error.Code": 64, "Usage.Model": 256, "Workspace.Name": 63,
	"Sandbox.Driver": 64, "Sandbox.EngineVersion": 256, "Sandbox.Tier": 64, "Sandbox.Limits": 16,
	"Sandbox.Boot": 16, "Sandbox.Environment": 256,
	"Tools.Selected[]": 2 * 64, "ResultRef": 256,
}

// TestSlimBoundsEveryField fails if slim neglects a field of schemas.Result: a large value in that field, alone or
// together with all others, makes the slim result too large for a record.
func TestSlimBoundsEveryField(t *testing.T) {
	var all schemas.Result
	for _, f := range reflect.VisibleFields(reflect.TypeFor[schemas.Result]()) {
		var one schemas.Result
		for _, r := range []*schemas.Result{&one, &all} {
			fillLarge(reflect.ValueOf(r).Elem().FieldByIndex(f.Index), f.Name)
		}
		if n := slimSize(t, &one); n > inlineMax/2 {
			t.Errorf("slim leaves %d bytes of %s, want at most half a record", n, f.Name)
		}
	}
	if n := slimSize(t, &all); n > inlineMax*3/4 { // the record needs some space too
		t.Errorf("slim(all fields) = %d bytes, too many for a record of %d", n, inlineMax)
	}
}

func slimSize(t *testing.T, r *schemas.Result) int {
	t.Helper()
	data, err := json.Marshal(slim(r, "ref"))
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}

// fillLarge sets v to a value as large as a record, or to its bound in boundedElsewhere.
func fillLarge(v reflect.Value, path string) {
	const large = inlineMax
	switch v.Interface().(type) {
	case json.RawMessage:
		v.SetBytes([]byte(`"` + strings.Repeat("x", large) + `"`))
		return
	case time.Time:
		return
	}
	switch v.Kind() {
	case reflect.String:
		n, ok := boundedElsewhere[path]
		switch {
		case ok:
		case strings.Contains(path, "[]"):
			n = large / 1024
		default:
			n = large
		}
		v.SetString(strings.Repeat("x", n))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1024, 1024))
		for i := range v.Len() {
			if i == 0 {
				fillLarge(v.Index(0), path+"[]")
			}
			v.Index(i).Set(v.Index(0))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for i := range large / 32 {
			v.SetMapIndex(reflect.ValueOf(fmt.Sprintf("%064d", i)), reflect.Zero(v.Type().Elem()))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillLarge(v.Elem(), path)
	case reflect.Struct:
		for i := range v.NumField() {
			fillLarge(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64: // small whatever the value
	default:
		panic("fillLarge does not know " + v.Type().String() + " of " + path)
	}
}

// TestExhaustedCounts checks that the error of a task without attempts left counts them in words that fit.
func TestExhaustedCounts(t *testing.T) {
	for n, want := range map[int]string{
		1: "the fleet gave up after 1 attempt",
		2: "the fleet gave up after 2 attempts",
	} {
		r := &run{}
		r.rec.Attempts = make([]schemas.Attempt, n)
		if got := r.errorExhausted().Message; got != want {
			t.Errorf("errorExhausted after %d = %q, want %q", n, got, want)
		}
	}
}
