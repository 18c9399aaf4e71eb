package form_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/form"
)

// claim returns the form of the examples, which has 12 fields.
func claim(t testing.TB) form.Form {
	t.Helper()
	data, err := os.ReadFile("../../examples/data/forms/claim.json")
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(data))
}

func parse(t testing.TB, source string) form.Form {
	t.Helper()
	f, err := form.Parse([]byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// answers returns right answers to the claim.
func answers() map[string]any {
	return map[string]any{
		"full_name": "Maria Lindqvist", "date_of_birth": "1984-05-31", "email": "maria.lindqvist@example.org",
		"phone": "+46 8 123 456 78", "policy_number": "PN-204417", "incident_date": "2026-04-09", "cause": "water",
		"rooms": []string{"kitchen", "hallway"}, "amount": 1240.50, "currency": "EUR", "household": 3,
		"repaired": false,
	}
}

func TestParse(t *testing.T) {
	f := claim(t)
	var names []string
	for _, field := range f.Fields {
		names = append(names, field.Name)
	}
	want := []string{
		"full_name", "date_of_birth", "email", "phone", "policy_number", "incident_date", "cause", "rooms", "amount",
		"currency", "household", "repaired",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("fields in the order of the JSON: %s", diff)
	}
	cause, _ := f.Field("cause")
	first := form.Choice{Value: "water", Title: "Water damage"}
	if cause.Label() != "Cause" || !cause.Required || cause.Choices[0] != first {
		t.Errorf("cause = %+v", cause)
	}
	if diff := cmp.Diff(map[string]any{"currency": "EUR"}, f.Defaults()); diff != "" {
		t.Errorf("Defaults: %s", diff)
	}
	if p := f.Check(answers()); p != nil {
		t.Errorf("Check(right answers) = %v, want none", p)
	}
	data, err := json.Marshal(f)
	if err != nil || !strings.HasPrefix(string(data), `{"$schema":`) {
		t.Errorf("MarshalJSON = %.40s, %v, want the schema", data, err)
	}
	var again form.Form
	if err := json.Unmarshal(data, &again); err != nil || again.Title != f.Title || len(again.Fields) != 12 {
		t.Errorf("UnmarshalJSON = %q with %d fields, %v", again.Title, len(again.Fields), err)
	}
}

// TestWholeLimits checks that 2.0 is an integer, as in JSON Schema.
func TestWholeLimits(t *testing.T) {
	f, err := form.Parse([]byte(`{"type": "object", "properties": {"a": {"type": "string", "maxLength": 2.0, "minLength": 1e0}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]int{"": 1, "ab": 0, "abc": 1} {
		if got := f.Check(form.Values{"a": value}); len(got) != want {
			t.Errorf("Check(%q) = %v, want %d problems", value, got, want)
		}
	}
	for _, bad := range []string{"2.5", "1e400", "1e20", `"2"`} {
		_, err := form.Parse([]byte(`{"type": "object", "properties": {"a": {"type": "string", "maxLength": ` + bad + `}}}`))
		if err == nil {
			t.Errorf("Parse with maxLength %s = nil, want an error", bad)
		}
	}
}

// Each of 20 wrong answers is refused at its field, and nowhere else.
func TestWrongAnswers(t *testing.T) {
	f := claim(t)
	missing := any(nil)
	for i, c := range []struct {
		field string
		value any
		want  string
	}{
		{"full_name", missing, `"Name" is missing`},
		{"full_name", "", `"Name" must have at least 2 characters`},
		{"full_name", strings.Repeat("x", 81), `"Name" must have at most 80 characters`},
		{"full_name", 7, `"Name" must be a text`},
		{"date_of_birth", "31 May 1984", `"Date of birth" must be a date such as 2026-03-31`},
		{"date_of_birth", "1984-02-30", `"Date of birth" must be a date such as 2026-03-31`},
		{"date_of_birth", 19840531, `"Date of birth" must be a date such as 2026-03-31`},
		{"email", "maria at example.org", `"E-mail" must be an e-mail address such as ada@example.com`},
		{"phone", "call me", `"Phone" must match the pattern ^\+?[0-9][0-9 ()-]{6,18}$`},
		{"policy_number", "PN-20441", `"Policy number" must match the pattern ^PN-[0-9]{6}$`},
		{
			"cause", "flood",
			`"Cause" must be one of: water (Water damage), fire (Fire), theft (Theft), storm (Storm)`,
		},
		{"rooms", "kitchen", `"Rooms" must be a list of choices`},
		{"rooms", []string{"attic"}, `"Rooms" must be one of: kitchen, bathroom, bedroom, living room, hallway`},
		{"rooms", []string{"kitchen", "kitchen"}, `"Rooms" has the same choice twice`},
		{
			"rooms",
			[]string{"kitchen", "bathroom", "bedroom", "living room", "hallway"},
			`"Rooms" may have at most 4 choices`,
		},
		{"amount", 0, `"Estimated cost" must be more than 0`},
		{"amount", 50000.01, `"Estimated cost" must be at most 50000`},
		{"amount", 12.345, `"Estimated cost" must be a multiple of 0.01`},
		{"amount", "12", `"Estimated cost" must be a number`},
		{"currency", missing, `"Currency" is missing: it is needed with "Estimated cost"`},
		{"household", 2.5, `"People in the household" must be a whole number`},
		{"household", 0, `"People in the household" must be at least 1`},
		{"repaired", "no", `"Already repaired" must be true or false`},
		{"repared", false, `"repared" is not a field of the form: did you mean "repaired"?`},
	} {
		values := answers()
		values[c.field] = c.value
		got := f.Check(values)
		if len(got) != 1 || got[0].Field != c.field || got[0].Message != c.want || got[0].Missing != (c.value == nil) {
			t.Errorf("%d: %s = %v: Check = %+v, want at %s: %s", i, c.field, c.value, got, c.field, c.want)
		}
	}
}

// What a condition demands is demanded only if it is met.
func TestConditions(t *testing.T) {
	f := claim(t)
	values := answers()
	delete(values, "rooms")
	if got := f.Check(values); got != nil {
		t.Errorf("water without rooms: %v, want none", got)
	}
	values["cause"] = "fire"
	want := []form.Problem{{Field: "rooms", Message: `"Rooms" is missing`, Missing: true}}
	if diff := cmp.Diff(want, f.Check(values)); diff != "" {
		t.Errorf("fire without rooms: %s", diff)
	}
	values["rooms"] = []string{}
	want = []form.Problem{{Field: "rooms", Message: `"Rooms" needs at least 1 choice`}}
	if diff := cmp.Diff(want, f.Check(values)); diff != "" {
		t.Errorf("fire without rooms: %s", diff)
	}
	f = parse(t, `{"type": "object", "properties": {"n": {"type": "integer"}, "why": {"type": "string"},
		"ok": {"type": "boolean"}}, "allOf": [
		{"if": {"properties": {"n": {"minimum": 10}}, "required": ["n"]}, "then": {"required": ["why"]}},
		{"if": {"properties": {"ok": {"const": true}}}, "then": {"properties": {"n": {"maximum": 99}}},
		"else": {"required": ["why"]}}]}`)
	for source, want := range map[string]int{
		`{}`: 0, `{"n": 9}`: 0, `{"n": 10}`: 1, `{"n": 10, "why": "x"}`: 0, `{"n": 100, "why": "x"}`: 1,
		`{"ok": false}`: 1, `{"ok": false, "why": "x", "n": 100}`: 0,
	} {
		var values map[string]any
		if err := json.Unmarshal([]byte(source), &values); err != nil {
			t.Fatal(err)
		}
		if got := f.Check(values); len(got) != want {
			t.Errorf("Check(%s) = %v, want %d problems", source, got, want)
		}
	}
}

// All problems are listed at once, in the order of the fields, and none repeats a value.
func TestAllProblems(t *testing.T) {
	values := map[string]any{
		"email": "secret-value", "cause": "secret-value", "phone": "secret-value", "rooms": []string{"secret-value"},
		"date_of_birth": "secret-value",
	}
	got := claim(t).Check(values)
	var fields []string
	for _, p := range got {
		fields = append(fields, p.Field)
		if strings.Contains(p.Message, "secret-value") {
			t.Errorf("%s repeats the value", p.Message)
		}
	}
	want := "full_name date_of_birth email phone policy_number incident_date cause rooms"
	if strings.Join(fields, " ") != want {
		t.Errorf("problems of %v, want %s", fields, want)
	}
}

func TestParseRefuses(t *testing.T) {
	const of = `{"type": "object", "properties": {"a": %s}}`
	in := func(property string) string { return fmt.Sprintf(of, property) }
	with := func(keywords string) string {
		return `{"type": "object", "properties": {"a": {"type": "string"}}, ` + keywords + "}"
	}
	many := func(n int, each string) string { return strings.TrimSuffix(strings.Repeat(each, n), ",") }
	var fields, choices []string
	for i := range 101 {
		fields = append(fields, fmt.Sprintf(`"f%d": {"type": "string"}`, i))
	}
	for i := range 251 {
		choices = append(choices, fmt.Sprintf(`"c%d"`, i))
	}
	for name, c := range map[string]struct{ source, want string }{
		"no JSON":         {`{`, "not valid JSON: unexpected EOF"},
		"not UTF-8":       {"{\"type\": \"\xff\"}", "UTF-8"},
		"list":            {`[]`, "the document: the value has the wrong type"},
		"no type":         {`{"properties": {"a": {"type": "string"}}}`, `"type" must be "object"`},
		"no fields":       {`{"type": "object", "properties": {}}`, "it has 0 fields"},
		"too large":       {in(`{"title": "` + strings.Repeat("x", form.MaxSize) + `"}`), "limit is 65536"},
		"many fields":     {`{"type": "object", "properties": {` + strings.Join(fields, ",") + `}}`, "it has 101 fields"},
		"many choices":    {in(`{"type": "string", "enum": [` + strings.Join(choices, ",") + `]}`), "has 251 choices"},
		"long text":       {in(`{"type": "string", "description": "` + strings.Repeat("x", 4097) + `"}`), "limit is 4096"},
		"long title":      {in(`{"type": "string", "title": "` + strings.Repeat("x", 251) + `"}`), "limit is 250"},
		"many conditions": {with(`"allOf": [` + many(33, `{},`) + `]`), "33 conditions"},
		"one too many":    {with(`"if": {}, "allOf": [` + many(32, `{},`) + `]`), "33 conditions"},
		"long name":       {`{"type": "object", "properties": {"` + strings.Repeat("x", 129) + `": {}}}`, "from 1 to 128"},
		"no name":         {`{"type": "object", "properties": {"": {"type": "string"}}}`, "from 1 to 128"},
		"control":         {`{"type": "object", "properties": {"a\u0007": {}}}`, "control characters"},
		"duplicate":       {`{"type": "object", "properties": {"a": {}, "a": {}}}`, "duplicate"},
		"nested":          {in(`{"type": "object", "properties": {}}`), "do not have this keyword"},
		"object":          {in(`{"type": "object"}`), "a form is flat"},
		"null":            {in(`{"type": "null"}`), "want string"},
		"no field type":   {in(`{}`), "want string"},
		"types":           {in(`{"type": ["string", "null"]}`), "/properties/a/type: the value has the wrong type"},
		"ref":             {in(`{"$ref": "file:///etc/passwd"}`), "do not have this keyword"},
		"unknown":         {in(`{"type": "string", "contentEncoding": "base64"}`), "do not have this keyword"},
		"case":            {in(`{"Type": "string"}`), "do not have this keyword"},
		"format":          {in(`{"type": "string", "format": "hostname"}`), "want one of email, uri, date, date-time"},
		"pattern":         {in(`{"type": "string", "pattern": "(?=x)"}`), "RE2"},
		"exploding":       {in(`{"type": "string", "pattern": "((x{100}){100}){100}"}`), "RE2"},
		"large pattern": {
			in(`{"type": "string", "pattern": "(?:` + strings.Repeat("ab", 1500) + `){1000}"}`),
			`the pattern of field "a" is too large: with its repeats written out, it has more than 10000 parts`,
		},
		"long pattern": {
			in(`{"type": "string", "pattern": "(?:` + strings.Repeat("ab", 2500) + `){1000}"}`),
			`the pattern of field "a" is not an RE2 regular expression of at most 4096 bytes`,
		},
		"large pattern in a condition": {
			`{"type": "object", "properties": {"a": {"type": "string"}}, "if": {"properties": {"a": {"pattern": "(?:` +
				strings.Repeat("ab", 1500) + `){1000}"}}}}`,
			`the pattern of field "a" of "if" is too large`,
		},
		"large patterns": {
			`{"type": "object", "properties": {` + largePatterns(100) + `}}`,
			`the pattern of field "f5" is too large: with repeats written out, all patterns together`,
		},
		"lengths":      {in(`{"type": "string", "minLength": 3, "maxLength": 2}`), "a negative length"},
		"negative":     {in(`{"type": "string", "minLength": -1}`), "a negative length"},
		"range":        {in(`{"type": "number", "minimum": 3, "maximum": 2}`), "above its maximum"},
		"multiple":     {in(`{"type": "number", "multipleOf": 0}`), "greater than 0"},
		"huge number":  {in(`{"type": "number", "minimum": 1e999}`), "type or size"},
		"other type's": {in(`{"type": "number", "pattern": "x"}`), "must not have pattern"},
		"no choices":   {in(`{"type": "string", "enum": []}`), "has 0 choices"},
		"free list":    {in(`{"type": "array", "items": {"type": "string"}}`), "must list its choices once"},
		"numbers":      {in(`{"type": "array", "items": {"type": "number", "enum": ["1"]}}`), "must be strings"},
		"twice":        {in(`{"type": "string", "enum": ["x", "x"]}`), "the same one twice"},
		"two ways":     {in(`{"type": "string", "enum": ["x"], "oneOf": [{"const": "x"}]}`), "choices once"},
		"names":        {in(`{"type": "string", "enum": ["x"], "enumNames": ["a", "b"]}`), "2 names"},
		"default":      {in(`{"type": "integer", "default": 1.5}`), `default: "a" must be a whole number`},
		"required":     {with(`"required": ["b"]`), `"b", which is not a field`},
		"dependent": {
			with(`"dependentRequired": {"b": ["a"]}`), "not a field",
		},
		"condition": {
			with(`"if": {"properties": {"b": {"const": 1}}}`), "not a field",
		},
		"null condition": {
			with(`"if": {"properties": {"a": {"const": null}}}`), "const",
		},
		"deep condition": {
			with(`"if": {"if": {}}`), "do not have this keyword",
		},
		"then alone": {with(`"then": {"required": ["a"]}`), `need "if"`},
		"open": {
			with(`"additionalProperties": true`), "no other fields",
		},
	} {
		_, err := form.Parse([]byte(c.source))
		e, ok := errors.AsType[*form.Error](err)
		if !ok || !strings.Contains(e.Error(), c.want) || len(e.Error()) > 2000 {
			t.Errorf("%s: Parse = %v, want an error with %q", name, err, c.want)
		}
	}
}

// Numbers with large exponents take no time, in forms and in values. Those beyond a float64's range are refused.
func TestLargeExponents(t *testing.T) {
	f := parse(t, `{"type": "object", "properties": {"a": {"type": "number", "minimum": -1e300, "maximum": 1e300}}}`)
	for _, n := range []string{"1e-300", "1e300", "0e999999999", "0.00e-999999999"} {
		if got := f.Check(map[string]any{"a": json.Number(n)}); got != nil {
			t.Errorf("Check(%s) = %v, want none", n, got)
		}
	}
	const zero = "0e99999999999999999999"
	source := `{"type":"object","properties":{"a":{"type":"string","minLength":` + zero + `},` +
		`"b":{"type":"number","minimum":` + zero + `,"maximum":` + zero + `}}}`
	if got := parse(t, source).Check(map[string]any{"a": "", "b": json.Number(zero)}); got != nil {
		t.Errorf("Check(%s) = %v, want none", zero, got)
	}
	if _, err := form.Parse([]byte(strings.Replace(source, "minimum", "multipleOf", 1))); err == nil {
		t.Error("Parse of a multipleOf of zero succeeded")
	}
	long := json.Number("1." + strings.Repeat("0", 200_000) + "1")
	for _, v := range []any{
		json.Number("1e999999999"), json.Number("1e-999999999"), long, math.NaN(), func() {},
	} {
		if got := f.Check(map[string]any{"a": v}); len(got) != 1 {
			t.Errorf("Check(%v) = %v, want one problem", v, got)
		}
	}
	for _, n := range []string{"1e999", "1e-999", string(long[:401]), `"1"`} {
		source := `{"type": "object", "properties": {"a": {"type": "number", "minimum": ` + n + `}}}`
		if _, err := form.Parse([]byte(source)); err == nil || !strings.Contains(err.Error(), "/properties/a/minimum") {
			t.Errorf("Parse with the minimum %.20s = %v, want an error at it", n, err)
		}
	}
}

// A number is compared with its digits, not with the nearest float64.
func TestExactNumbers(t *testing.T) {
	f := parse(t, `{"type": "object", "properties": {
		"n": {"type": "integer", "maximum": 9007199254740993, "default": 9007199254740993},
		"x": {"type": "number", "exclusiveMaximum": 1}, "why": {"type": "string"}},
		"if": {"properties": {"n": {"const": 9007199254740991}}, "required": ["n"]}, "then": {"required": ["why"]}}`)
	for source, want := range map[string]string{
		`{"n": 9007199254740993}`:           "",
		`{"n": 9007199254740993.0}`:         "",
		`{"n": 9007199254740993.5}`:         `"n" must be a whole number`,
		`{"n": 4503599627370496.25}`:        `"n" must be a whole number`,
		`{"n": 1.00000000000000000001}`:     `"n" must be a whole number`,
		`{"n": 9007199254740994}`:           `"n" must be at most 9007199254740993`,
		`{"n": 9007199254740991}`:           `"why" is missing`,
		`{"n": 9007199254740990.9999999e0}`: `"n" must be a whole number`,
		`{"x": 0.99999999999999999999}`:     "",
		`{"x": 1}`:                          `"x" must be less than 1`,
	} {
		var values form.Values
		if err := json.Unmarshal([]byte(source), &values); err != nil {
			t.Fatal(err)
		}
		var messages []string
		for _, p := range f.Check(values) {
			messages = append(messages, p.Message)
		}
		if got := strings.Join(messages, "; "); got != want {
			t.Errorf("Check(%s) = %q, want %q", source, got, want)
		}
	}
	if data, err := json.Marshal(f.Defaults()); string(data) != `{"n":9007199254740993}` {
		t.Errorf("Defaults = %s, %v, want the digits of the form", data, err)
	}
	n, _ := f.Field("n")
	for text, want := range map[string]any{
		"9,007,199,254,740,993": json.Number("9007199254740993"), "-007": -7.0, "0,5": 0.5, "+00.25": 0.25, "000": 0.0,
		"9007199254740993.5": json.Number("9007199254740993.5"),
	} {
		if got, ok := n.Read(text); got != want || !ok {
			t.Errorf("Read(%s) = %v, %v, want %v", text, got, ok, want)
		}
	}
	for source, want := range map[string]string{
		`{"n": 1e999}`:     "a number is too large, too small or too long",
		`{"n": 1, "n": 2}`: "the values have the same name twice",
		`[]`:               "the values are not a JSON object",
	} {
		var values form.Values
		if err := json.Unmarshal([]byte(source), &values); err == nil || err.Error() != want {
			t.Errorf("Unmarshal(%s) = %v, want %q", source, err, want)
		}
	}
}

func TestLimitsOfValues(t *testing.T) {
	f := parse(t, `{"type": "object", "properties": {"a": {"type": "string"}}}`)
	if got := f.Check(map[string]any{"a": strings.Repeat("x", form.MaxValues-8)}); got != nil {
		t.Errorf("values of the largest size: %v", got)
	}
	if got := f.Check(map[string]any{"a": strings.Repeat("x", form.MaxValues-7)}); len(got) != 1 {
		t.Errorf("larger values: %v, want one problem", got)
	}
	if got := f.Check(map[string]any{"a": strings.Repeat("<", form.MaxValues-8)}); got != nil {
		t.Errorf("values of the largest size with characters of HTML: %v", got)
	}
	many := map[string]any{}
	for i := range 1000 {
		many[strconv.Itoa(i)] = 1
	}
	if got := f.Check(many); len(got) != 21 {
		t.Errorf("1000 unknown fields: %d problems, want 21", len(got))
	}
}

func TestZeroForm(t *testing.T) {
	var f form.Form
	if got := f.Check(map[string]any{"a": 1}); len(got) != 1 || len(f.Defaults()) != 0 {
		t.Errorf("Check = %v, want that a is not a field", got)
	}
}

// MCP's clients get only what its specification allows.
func TestElicitation(t *testing.T) {
	got := string(claim(t).Elicitation("rooms", "email", "amount", "policy_number"))
	want := `{"type":"object","properties":{"email":{"type":"string","title":"E-mail","format":"email"},` +
		`"policy_number":{"type":"string","title":"Policy number"},"rooms":{"type":"array","title":"Rooms","items":` +
		`{"type":"string","enum":["kitchen","bathroom","bedroom","living room","hallway"]},"maxItems":4},` +
		`"amount":{"type":"number","title":"Estimated cost","maximum":50000}},"required":["email","policy_number"]}`
	if got != want {
		t.Errorf("Elicitation = %s\nwant %s", got, want)
	}
	const titled = `"array","items":{"anyOf":[{"const":"a","title":"A"},{"const":"b","title":"b"}]}`
	for source, want := range map[string]string{
		`"string","oneOf":[{"const":"a","title":"A"},{"const":"b"}]`: `"string","oneOf":[{"const":"a","title":"A"},` +
			`{"const":"b","title":"b"}]`,
		`"string","enum":["a"],"enumNames":["A"]`: `"string","enum":["a"],"enumNames":["A"]`,
		`"array","items":{"enum":["a"]}`:          `"array","items":{"type":"string","enum":["a"]}`,

		`"array","items":{"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"b"}]}`: titled,
		`"array","items":{"type":"string","anyOf":[{"const":"a","title":"A"},{"const":"b"}]}`: titled,
	} {
		const of = `{"type":"object","properties":{"x":{"type":%s}}}`
		got := string(parse(t, fmt.Sprintf(of, source)).Elicitation("x"))
		if want := fmt.Sprintf(of, want); got != want {
			t.Errorf("Elicitation of %s = %s\nwant %s", source, got, want)
		}
	}
}

// No form and no values crash, and a form that was accepted is accepted again.
func FuzzForm(f *testing.F) {
	const of = `{"type": "object", "properties": {"a": %s}, "if": {}, "then": {}}`
	f.Add(fmt.Sprintf(of, `{"type": "string", "pattern": "^x"}`), `{"a": "x"}`)
	f.Add(fmt.Sprintf(of, `{"type": "array", "items": {"anyOf": [{"const": "x"}]}}`), `{"a": ["x"]}`)
	f.Fuzz(func(t *testing.T, source, values string) {
		parsed, err := form.Parse([]byte(source))
		if err != nil {
			return
		}
		data, err := json.Marshal(parsed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := form.Parse(data); err != nil {
			t.Fatalf("Parse(its own JSON) = %v", err)
		}
		var v map[string]any
		if json.Unmarshal([]byte(values), &v) == nil {
			before := maps.Clone(v)
			parsed.Check(v)
			if diff := cmp.Diff(before, v); diff != "" {
				t.Errorf("Check changed the values: %s", diff)
			}
		}
	})
}

// largePatterns returns n properties, f0 and so on, whose patterns need as much memory as one pattern may.
func largePatterns(n int) string {
	properties := make([]string, n)
	for i := range properties {
		properties[i] = fmt.Sprintf(`"f%d": {"type": "string", "pattern": "%d(?:abcdefghi){900}"}`, i, i)
	}
	return strings.Join(properties, ", ")
}

// TestNumbersWithASignOfTheirOwn checks that a number is read with its sign and size, or not at all.
func TestNumbersWithASignOfTheirOwn(t *testing.T) {
	f := parse(t, `{"type":"object","properties":{"a":{"type":"number"},"d":{"type":"string","format":"date"}}}`)
	for text, want := range map[string]any{
		"−5": -5.0, "-5": -5.0, "€ -5": -5.0, "€ −1.240,50": -1240.5, "5 €": 5.0, "€5": 5.0, "5kg": 5.0,
		"5-": nil, "(5.00)": nil, "–5": nil, "-€5": nil, "- 5": nil, "minus 5": nil, "3½": nil, "5²": nil, "5k": nil,
		"5 - paid": 5.0, "5 million": nil, "<5": nil, "±5": nil, "not 5": nil,
		"0,500": nil, "0.500,5": nil, "0,50": 0.5, "100,500": 100500.0,
		"B-12": nil, "COVID-19": nil, "A+5": nil, "B 12": 12.0, "at -12": -12.0,
		"$5M": nil, "£ 2m": nil, "€3B": nil, "5M €": nil, "EUR 5M": nil, "5m USD": nil, "5 m": 5.0, "5 b 2": nil,
	} {
		if got, ok := f.Fields[0].Read(text); ok != (want != nil) || ok && got != want {
			t.Errorf("Read(%q) = %v, %t, want %v", text, got, ok, want)
		}
	}
	for text, want := range map[string]string{
		"9 April 2026": "2026-04-09", "Sept. 9, 2026": "2026-09-09", "9 September 2026": "2026-09-09",
		"flat 5, from 2026-05-01": "2026-05-01", "Room 12 2026-05-01": "2026-05-01",
		"not 2026-05-01": "", "3/4/2026 or 13/4/2026": "", "13/4/2026, 1/5/2026": "", "2026-02-30 or 2026-03-01": "",
		"2026-02-30, 2026-03-01, 2026-04-01": "", "30 February 2026 or 1 March 2026": "", "31 Feb 2026": "",
	} {
		if got, ok := f.Fields[1].Read(text); ok != (want != "") || ok && got != want {
			t.Errorf("Read(%q) = %v, %t, want %q", text, got, ok, want)
		}
	}
}
