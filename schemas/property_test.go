package schemas

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// These tests check that schemas and Go types agree: every value of the Go types is valid and survives a round trip
// through JSON.

func TestEveryTaskIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { roundTrip(t, TaskV1, task.Draw(t, "task")) })
}

func TestEveryRecordIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { roundTrip(t, RecordV1, record.Draw(t, "record")) })
}

func TestEveryResultIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roundTrip(t, ResultV1, result.Draw(t, "result"))
	})
}

func TestEveryProgressIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roundTrip(t, ProgressV1, Progress{
			TaskID: taskID.Draw(t, "id"),
			Run:    rapid.IntRange(0, 9).Draw(t, "run"),
			Time:   instant.Draw(t, "time"),
			Stage:  rapid.SampledFrom([]string{"", "checkout", "run"}).Draw(t, "stage"),
			Stream: rapid.SampledFrom([]string{"", "stdout", "stderr"}).Draw(t, "stream"),
			Text:   rapid.String().Draw(t, "text"),
		})
	})
}

func roundTrip[T any](t *rapid.T, schema string, v T) {
	first, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var back T
	if err := Decode(schema, first, &back); err != nil {
		t.Fatalf("Decode(%s, %s) = %v, want nil", schema, first, err)
	}
	second, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Fatalf("round trip of %s\n got %s\nwant %s", schema, second, first)
	}
}

var (
	slug    = rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,62}`)
	name    = rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,62}`)
	taskID  = rapid.StringMatching(`[a-z2-7]{26}`)
	traceID = rapid.StringMatching(`[0-9a-f]{32}`)
	instant = rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	})
	jsonValue = rapid.Map(rapid.SampledFrom([]string{`null`, `1`, `"x"`, `[1,{"a":null}]`, `{}`, `true`}),
		func(s string) json.RawMessage { return json.RawMessage(s) })
	labels = rapid.MapOfN(rapid.StringN(1, 20, 40), rapid.StringN(0, 50, 200), 0, 4)

	file = rapid.Custom(func(t *rapid.T) File {
		f := File{Name: rapid.StringMatching(`[^/.](/[^/.][^/]{0,9}){0,3}`).Draw(t, "name")}
		text := rapid.String().Draw(t, "content")
		if rapid.Bool().Draw(t, "text") {
			f.Text = &text
		} else {
			f.Base64 = new(base64.StdEncoding.EncodeToString([]byte(text)))
		}
		return f
	})

	task = rapid.Custom(func(t *rapid.T) Task {
		v := Task{
			Pool:      rapid.OneOf(rapid.Just(""), slug).Draw(t, "pool"),
			Inputs:    rapid.OneOf(rapid.Just(json.RawMessage(nil)), jsonValue).Draw(t, "inputs"),
			Files:     rapid.SliceOfN(file, 0, 3).Draw(t, "files"),
			MinTier:   rapid.SampledFrom([]string{"", "gvisor", "microsandbox"}).Draw(t, "tier"),
			Commit:    rapid.SampledFrom([]string{"", "on_success", "always", "never"}).Draw(t, "commit"),
			CheckOnly: rapid.Bool().Draw(t, "check_only"),
			Labels:    labels.Draw(t, "labels"),
			Env: rapid.MapOfN(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,127}`), rapid.StringN(0, 50, 200), 0, 4).
				Draw(t, "env"),
		}
		content := rapid.StringN(1, 50, 200).Draw(t, "content")
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			v.Description = content
		case 1:
			v.Code = content
		case 2:
			v.Skill = rapid.StringMatching(`[a-z][a-z0-9]{0,9}(-[a-z0-9]{1,9}){0,4}`).Draw(t, "skill")
		case 3:
			v.Workflow = json.RawMessage(`{}`)
		}
		if rapid.Bool().Draw(t, "limits") {
			v.Limits = &Limits{
				TimeoutS:    rapid.Float64Range(0.001, 86400).Draw(t, "timeout"),
				MemoryMB:    rapid.IntRange(16, 65536).Draw(t, "memory"),
				OutputBytes: rapid.Int64Range(1, 64<<20).Draw(t, "output"),
			}
		}
		if rapid.Bool().Draw(t, "retry") {
			v.Retry = &Retry{Attempts: rapid.IntRange(1, 100).Draw(t, "attempts"), On: []string{"failed"}}
		}
		if rapid.Bool().Draw(t, "later") {
			v.NotBefore = new(instant.Draw(t, "not_before"))
		}
		return v
	})

	result = rapid.Custom(func(t *rapid.T) Result {
		v := Result{
			TaskID: taskID.Draw(t, "id"),
			Tenant: name.Draw(t, "tenant"),
			Status: rapid.SampledFrom([]Status{Succeeded, Failed, Blocked, Timeout, Cancelled, Expired, Dead}).
				Draw(t, "status"),
			Attempt:   rapid.IntRange(0, 5).Draw(t, "attempt"),
			Source:    "/test",
			EventID:   rapid.StringN(1, 20, 60).Draw(t, "event"),
			TraceID:   traceID.Draw(t, "trace"),
			Result:    jsonValue.Draw(t, "result"),
			Output:    rapid.String().Draw(t, "output"),
			Artifacts: []Artifact{},
			Tools:     ToolsUsed{Selected: []string{}, Calls: []ToolCall{}},
			Workspace: WorkspaceChange{Name: "main", Generation: 3, Changed: []string{"a"}, Conflicts: []string{}},
			TimingMS:  Timing{Total: rapid.Float64Range(0, 1e9).Draw(t, "total")},
			EndedAt:   instant.Draw(t, "ended"),
		}
		if v.Status != Succeeded {
			v.Error = &Error{
				Code:    "exception",
				Message: rapid.String().Draw(t, "message"),
				Line:    rapid.IntRange(0, 99).Draw(t, "line"),
			}
		}
		return v
	})

	approval = rapid.Custom(func(t *rapid.T) Approval {
		v := Approval{
			Call:      rapid.StringMatching(`[a-z2-7]{10}`).Draw(t, "call"),
			Server:    "git",
			Tool:      rapid.String().Draw(t, "tool"),
			Arguments: jsonValue.Draw(t, "arguments"),
			ArgsHash:  "00",
			ArgsBytes: rapid.IntRange(0, 1e6).Draw(t, "bytes"),
			State: rapid.SampledFrom([]string{
				ApprovalPending, ApprovalApproved, ApprovalDenied, ApprovalExpired, ApprovalWithdrawn,
			}).Draw(t, "state"),
			AskedAt:   instant.Draw(t, "asked"),
			ExpiresAt: instant.Draw(t, "expires"),
			AllOfTool: rapid.Bool().Draw(t, "all"),
		}
		if rapid.Bool().Draw(t, "answered") {
			v.AnsweredAt, v.By, v.Reason = instant.Draw(t, "at"), "alice", rapid.String().Draw(t, "reason")
		}
		return v
	})

	record = rapid.Custom(func(t *rapid.T) Record {
		v := Record{
			TaskID:    taskID.Draw(t, "id"),
			Tenant:    name.Draw(t, "tenant"),
			Workspace: name.Draw(t, "workspace"),
			Pool:      slug.Draw(t, "pool"),
			Priority:  rapid.SampledFrom([]string{"high", "normal", "low"}).Draw(t, "priority"),
			Status: rapid.SampledFrom([]Status{
				Queued, Running, RetryWait, Succeeded, Failed, Blocked, Timeout, Cancelled, Expired, Dead,
			}).Draw(t, "status"),
			SubmittedAt: instant.Draw(t, "submitted"),
			Source:      "/test",
			EventID:     "1",
			Approvals:   rapid.SliceOfN(approval, 0, 3).Draw(t, "approvals"),
		}
		if v.Status.Terminal() {
			v.Result = new(result.Draw(t, "result"))
			v.EndedAt = instant.Draw(t, "ended")
		}
		return v
	})
)

// TestZeroResultHasNoNullLists checks that MarshalJSON writes empty lists, because the schema allows null only for a
// program's value and error.
func TestZeroResultHasNoNullLists(t *testing.T) {
	data, err := json.Marshal(Result{})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(`"result":null`, "", `"error":null`, "").Replace(string(data))
	if strings.Contains(text, ":null") {
		t.Errorf("Marshal(Result{}) = %s, want null only for result and error", data)
	}
}

// TestSchemasNameAllFields checks that the schema of each document names the fields of its Go types, with their types.
// An optional field without a schema would be valid with any value.
func TestSchemasNameAllFields(t *testing.T) {
	for name, v := range map[string]any{
		"task.v1.json": Task{}, "record.v1.json": Record{}, "result.v1.json": Result{}, "progress.v1.json": Progress{},
		"workflow.v1.json": Workflow{},
	} {
		c := fieldCheck{t, map[string]bool{}}
		c.check(name, reflect.TypeOf(v), name, map[string]any{"$ref": name})
	}
}

// fieldCheck compares Go types with their schemas.
type fieldCheck struct {
	t    *testing.T
	seen map[string]bool // structs that were compared with a schema; a workflow may have another one within it
}

// check compares a Go type with the schema at a place of a file.
func (c fieldCheck) check(place string, goType reflect.Type, file string, schema any) {
	file, node := c.resolve(file, schema)
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	want := ""
	switch kind := goType.Kind(); {
	case goType == reflect.TypeFor[json.RawMessage]() || kind == reflect.Interface:
		return
	case goType == reflect.TypeFor[time.Time]() || kind == reflect.String:
		want = "string"
	case kind == reflect.Bool:
		want = "boolean"
	case kind == reflect.Int || kind == reflect.Int64 || kind == reflect.Uint64:
		want = "integer"
	case kind == reflect.Float64:
		want = "number"
	case kind == reflect.Slice:
		want = "array"
		c.check(place+"[]", goType.Elem(), file, node["items"])
	case kind == reflect.Map:
		want = "object"
		c.check(place+".*", goType.Elem(), file, node["additionalProperties"])
	case kind == reflect.Struct:
		want = "object"
		c.fields(place, goType, file, node)
	}
	enum, _ := node["enum"].([]any)
	isEnum := want == "string" && len(enum) > 0
	if got := node["type"]; got != want && !isEnum {
		c.t.Errorf("%s: the schema has the type %v, want %q for %s", place, got, want, goType)
	}
}

// fields checks the fields of a struct.
func (c fieldCheck) fields(place string, goType reflect.Type, file string, node map[string]any) {
	key := fmt.Sprint(goType, file, node)
	if c.seen[key] {
		return
	}
	c.seen[key] = true
	properties, _ := node["properties"].(map[string]any)
	for field := range goType.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		schema, ok := properties[name]
		if !ok {
			schema, ok = node["additionalProperties"].(map[string]any)
		}
		switch isOption := strings.HasSuffix(place, ".options"); {
		case ok:
			c.check(place+"."+name, field.Type, file, schema)
		case !isOption: // a step has only some options of a task
			c.t.Errorf("%s: the schema has no property %q for the field %s of %s", place, name, field.Name, goType)
		}
	}
}

// resolve follows the references of a schema, and skips the alternative null. It returns the schema and its file.
func (c fieldCheck) resolve(file string, schema any) (string, map[string]any) {
	node, _ := schema.(map[string]any)
	if ref, ok := node["$ref"].(string); ok {
		name, pointer, _ := strings.Cut(ref, "#")
		file = cmp.Or(name, file)
		data, err := files.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		var at map[string]any
		if err := json.Unmarshal(data, &at); err != nil {
			c.t.Fatal(err)
		}
		for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
			if part != "" {
				at, _ = at[part].(map[string]any)
			}
		}
		return c.resolve(file, at)
	}
	if list, ok := node["oneOf"].([]any); ok && node["type"] == nil {
		for _, alternative := range list {
			if a, _ := alternative.(map[string]any); a["type"] != "null" {
				return c.resolve(file, a)
			}
		}
	}
	return file, node
}
