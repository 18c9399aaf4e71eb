package schemas

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidateTask(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       []string // paths
	}{
		{"code", `{"code":"print(1)"}`, nil},
		{"many fields", `{"description":"x","inputs":[1],"files":[{"name":"a","text":""}],"retry":{"on":["failed"]},"labels":{"a":"b"}}`, nil},
		{"no kind", `{}`, []string{""}},
		{"two kinds", `{"code":"x","description":"y"}`, []string{""}},
		{"unknown", `{"code":"x","cod":1}`, []string{""}},
		{"type", `{"code":1}`, []string{"/code"}},
		{
			"deep", `{"code":"x","limits":{"timeout_s":-1},"files":[{"name":"a"}]}`,
			[]string{"/files/0", "/limits/timeout_s"},
		},
		{"name of a variable", `{"code":"x","env":{"A-B":"1","C":"2"}}`, []string{"/env/A-B"}},
		{"too many processors", `{"code":"x","limits":{"cpus":1e308}}`, []string{"/limits/cpus"}},
		{"too few processors", `{"code":"x","limits":{"cpus":0.009}}`, []string{"/limits/cpus"}},
		{"fewest processors", `{"code":"x","limits":{"cpus":0.01}}`, nil},
		{"timeout too long", `{"code":"x","limits":{"timeout_s":1e300}}`, []string{"/limits/timeout_s"}},
		{"timeout too short", `{"code":"x","limits":{"timeout_s":1e-12}}`, []string{"/limits/timeout_s"}},
		{
			"exponents", `{"code":"x","limits":{"cpus":1e9999999,"timeout_s":1e-9999999},` +
				`"retry":{"attempts":1e99999999999999999999}}`,
			[]string{"/limits/cpus", "/limits/timeout_s", "/retry/attempts"},
		},
		{"numbers of the program", `{"code":"x","inputs":[1e9999999,` + strings.Repeat("9", 3000) + `]}`, nil},
		{"base64", `{"code":"x","files":[{"name":"a","base64":"%"}]}`, []string{"/files/0/base64"}},
		{"file up", `{"code":"x","files":[{"name":"a/../../b","text":""}]}`, []string{"/files/0/name"}},
		{"file absolute", `{"code":"x","files":[{"name":"/etc/x","text":""}]}`, []string{"/files/0/name"}},
		{"file empty part", `{"code":"x","files":[{"name":"a//b","text":""}]}`, []string{"/files/0/name"}},
		{"file this", `{"code":"x","files":[{"name":"./a","text":""}]}`, []string{"/files/0/name"}},
		{"file directory", `{"code":"x","files":[{"name":"a/","text":""}]}`, []string{"/files/0/name"}},
		{"file dots", `{"code":"x","files":[{"name":".../..a/.b/a..","text":""}]}`, nil},
		{
			"file long part", `{"code":"x","files":[{"name":"` + strings.Repeat("x", 257) + `","text":""}]}`,
			[]string{"/files/0/name"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Validate(TaskV1, []byte(c.data))
			var got []string
			if e, ok := errors.AsType[*InvalidError](err); ok {
				for _, at := range e.At {
					if len(got) == 0 || got[len(got)-1] != at.Path {
						got = append(got, at.Path)
					}
				}
				t.Log(err)
			} else if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("Validate(%s) paths (-want +got):\n%s", c.data, d)
			}
		})
	}
}

func TestValidateWritesPlainNumbers(t *testing.T) {
	err := Validate(TaskV1, []byte(`{"code":"x","limits":{"timeout_s":35996400}}`))
	const want = "/limits/timeout_s: maximum: got 35996400, want 604800"
	if err == nil || err.Error() != want {
		t.Errorf("Validate of a timeout of 9999 hours = %v, want %s", err, want)
	}
}

func TestValidateRequiresUTF8(t *testing.T) {
	var task Task
	err := Decode(TaskV1, []byte("{\"code\": \"print('\xff')\"}"), &task)
	if err == nil || err.Error() != "not valid JSON: it is not UTF-8" || task.Code != "" {
		t.Errorf("Decode = %v, code %q, want an error and no code", err, task.Code)
	}
}

// The error of a tool's rate says what is wrong with which tool.
func TestToolRateErrors(t *testing.T) {
	for pattern, c := range map[string]struct {
		rate Rate
		want string
	}{
		"crm":                             {"1/s", `tool "crm": want server/tool or server/*`},
		"crm/" + strings.Repeat("x", 200): {"1/s", "has 204 bytes; the limit is 200"},
		"crm/find":                        {"10", `tool crm/find: rate "10": want a number`},
		"crm/get": {
			"9999999999999999999/s", `tool crm/get: rate "9999999999999999999/s": want a number from 1 to`,
		},
		"crm/*": {"", "tool crm/* has no rate"},
	} {
		path, err := TenantLimits{ToolRates: map[string]Rate{pattern: c.rate}}.Check()
		if path != "/tool_rates" || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20s %s: %s, %v; want %s", pattern, c.rate, path, err, c.want)
		}
	}
}

// TestDecodeIntegers checks that each form of an integer that the schema permits is decoded, and that one too large is
// refused by its maximum.
func TestDecodeIntegers(t *testing.T) {
	var task Task
	const in = `{"code":"x","limits":{"memory_mb":512.0,"output_bytes":1e3},"tools":{"max":1e1},"repair_attempts":1e1,` +
		`"inputs":1e1}`
	if err := Decode(TaskV1, []byte(in), &task); err != nil || task.Limits.MemoryMB != 512 ||
		task.Limits.OutputBytes != 1000 || task.Tools.Max != 10 || string(task.Inputs) != "1e1" {
		t.Errorf("Decode(%s) = %+v, %v", in, task, err)
	}
	for number, got := range map[string]string{
		"1e30": "1e+30", "1e15": "1000000000000000", "99999999999999999999": "99999999999999999999",
	} {
		err := Decode(TaskV1, []byte(`{"code":"x","limits":{"memory_mb":`+number+`}}`), new(Task))
		want := "/limits/memory_mb: maximum: got " + got + ", want 2147483647"
		if err == nil || err.Error() != want {
			t.Errorf("Decode with memory_mb %s = %v, want %s", number, err, want)
		}
	}
}

// TestExactlyOne checks the message for an object that must have exactly one of several properties.
func TestExactlyOne(t *testing.T) {
	const kinds = "want exactly one of code, task, skill, tool, workflow, wait, ask and emit"
	const waits = "want exactly one of for, until and event"
	for _, c := range [][3]string{
		{TaskV1, `[]`, "/: got array, want object"},
		{TaskV1, `{"code":"x","files":[1]}`, "/files/0: got number, want object"},
		{TaskV1, `{}`, "/: want exactly one of description, code, skill and workflow; it has none"},
		{
			TaskV1, `{"code":"x","skill":"y"}`,
			"/: want exactly one of description, code, skill and workflow; it has code and skill",
		},
		{
			TaskV1, `{"code":"x","files":[{"name":"a","text":"","base64":""}]}`,
			"/files/0: want exactly one of text and base64; it has text and base64",
		},
		{WorkflowV1, `{"name":"w","steps":[{"id":"a"}]}`, "/steps/0: " + kinds + "; it has none"},
		{
			WorkflowV1, `{"name":"w","steps":[{"id":"a","code":"x","tool":"s/t"}]}`,
			"/steps/0: " + kinds + "; it has code and tool",
		},
		{
			WorkflowV1, `{"name":"w","steps":[{"id":"a","wait":{"for":"1s","until":"x"}}]}`,
			"/steps/0/wait: " + waits + "; it has for and until",
		},
		{
			WorkflowV1, `{"name":"w","steps":[{"id":"a","code":"x","options":{"files":[{"name":"a"}]}}]}`,
			"/steps/0/options/files/0: want exactly one of text and base64; it has none",
		},
	} {
		if err := Validate(c[0], []byte(c[1])); err == nil || err.Error() != c[2] {
			t.Errorf("Validate(%s) = %v, want %s", c[1], err, c[2])
		}
	}
}
