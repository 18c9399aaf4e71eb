package guardrails_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/guardrails"
)

// broken returns the names and lines of the rules that a program breaks.
func broken(t *testing.T, fleet, tenant guardrails.Options, p guardrails.Program) []string {
	t.Helper()
	r, err := guardrails.New(fleet, tenant)
	if err != nil {
		t.Fatalf("New = %v, want nil", err)
	}
	var found []string
	for _, f := range r.Program(p) {
		found = append(found, fmt.Sprint(f.Rule, " ", f.Line))
	}
	return found
}

func TestConfiguredRules(t *testing.T) {
	p := guardrails.Program{
		Code:       "import a.b\nfrom c import d\nx = 1 # DROP TABLE\n",
		Imports:    []guardrails.Import{{Module: "a.b", Line: 1}, {Module: "c", Names: []string{"d"}, Line: 2}},
		Calls:      []guardrails.Use{{Name: "c.d", Line: 4}, {Name: "open", Line: 5}, {Name: "ab.x", Line: 6}},
		References: []guardrails.Use{{Name: "open", Line: 7}, {Name: "builtins.open", Line: 8}},
	}
	opens := []string{"blocked_call 5", "blocked_call 7", "blocked_call 8"}
	for _, c := range []struct {
		name string
		in   guardrails.Options
		want []string
	}{
		{"none", guardrails.Options{}, nil},
		{"a module", guardrails.Options{BlockedImports: []string{"a"}}, []string{"blocked_import 1"}},
		{
			"a submodule",
			guardrails.Options{BlockedImports: []string{"c.d"}},
			[]string{"blocked_import 2", "blocked_call 4"},
		},
		{"a call", guardrails.Options{BlockedCalls: []string{"open"}}, opens},
		{"a qualified call", guardrails.Options{BlockedCalls: []string{"builtins.open"}}, opens},
		{"builtins", guardrails.Options{BlockedImports: []string{"builtins"}}, []string{"blocked_call 8"}},
		{"a pattern", guardrails.Options{BlockedPatterns: []string{`(?i)drop\s+table`}}, []string{"blocked_pattern 3"}},
	} {
		c.in.Level = guardrails.Advise
		if diff := cmp.Diff(c.want, broken(t, c.in, guardrails.Options{}, p)); diff != "" {
			t.Errorf("%s blocked by the fleet (-want +got):\n%s", c.name, diff)
		}
		if diff := cmp.Diff(c.want, broken(t, guardrails.Options{Level: guardrails.Advise}, c.in, p)); diff != "" {
			t.Errorf("%s blocked by the tenant (-want +got):\n%s", c.name, diff)
		}
	}
	if _, err := guardrails.New(guardrails.Options{}, guardrails.Options{BlockedPatterns: []string{"("}}); err == nil {
		t.Error("New with an invalid pattern = nil, want an error")
	}
}

// Patterns that make other regular-expression engines backtrack are matched in time proportional to the program's size.
// A busy machine needs seconds for each pattern. An engine that backtracks would need years.
func TestPatternsThatExplode(t *testing.T) {
	const limit = time.Minute
	p := guardrails.Program{Code: strings.Repeat("a", 1<<18)}
	for _, pattern := range []string{`^(a+)+$b`, `(a|aa)+b`, `(.*)*b`, `(a?){30}a{30}b`} {
		o := guardrails.Options{Level: guardrails.Advise, BlockedPatterns: []string{pattern}}
		start := time.Now()
		if got := broken(t, o, guardrails.Options{}, p); got != nil {
			t.Errorf("pattern %s finds %v, want nothing", pattern, got)
		}
		if took := time.Since(start); took > limit {
			t.Errorf("pattern %s took %s for 256 KB, want at most %s", pattern, took, limit)
		}
	}
}

// Rules that would never or always apply are refused, because their author expects something else.
func TestRulesWithoutEffectAreRefused(t *testing.T) {
	condition := func(name, on string, tools ...string) guardrails.Options {
		c := guardrails.Condition{Name: name, On: on, Tools: tools, Require: "true"}
		return guardrails.Options{Conditions: []guardrails.Condition{c}}
	}
	for _, c := range []struct {
		options guardrails.Options
		want    string
	}{
		{guardrails.Options{BlockedImports: []string{"os", "os.*"}}, `blocked import "os.*": want a dotted name`},
		{guardrails.Options{BlockedImports: []string{""}}, `blocked import ""`},
		{guardrails.Options{BlockedImports: []string{"a b"}}, `blocked import "a b"`},
		{guardrails.Options{BlockedCalls: []string{"os.system()"}}, `blocked call "os.system()"`},
		{guardrails.Options{BlockedCalls: []string{"os..remove"}}, `blocked call "os..remove"`},
		{guardrails.Options{BlockedCalls: []string{"5"}}, `blocked call "5"`},
		{guardrails.Options{BlockedPatterns: []string{""}}, `blocked pattern "": it matches the empty text`},
		{guardrails.Options{BlockedPatterns: []string{"x*"}}, `blocked pattern "x*": it matches the empty text`},
		{condition("", guardrails.OnInputs), `rule "": name must be`},
		{condition("a\x1b[31m", guardrails.OnInputs), `rule "a\x1b[31m": name must be`},
		{condition("a", guardrails.OnInputs, "x/y"), `rule "a": tools has no effect with on: inputs`},
		{condition("a", guardrails.OnArguments, "x/y"), ""},
		{guardrails.Options{BlockedImports: []string{"os", "é.b_2"}, BlockedCalls: []string{"open", "a.b.c"}}, ""},
	} {
		for _, fleet := range []bool{true, false} {
			f, tenant := c.options, guardrails.Options{}
			if !fleet {
				f, tenant = tenant, f
			}
			_, err := guardrails.New(f, tenant)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("New(%+v) = %v, want %q", c.options, err, c.want)
			}
		}
	}
}

// A tenant's level applies if it is stricter than the fleet's, and its lists add to the fleet's.
func TestTenantOnlyTightens(t *testing.T) {
	levels := []guardrails.Level{guardrails.Off, guardrails.Advise, guardrails.Strict}
	for _, fleet := range levels {
		for _, tenant := range levels {
			r, err := guardrails.New(guardrails.Options{Level: fleet}, guardrails.Options{Level: tenant})
			if err != nil || r.Level != max(fleet, tenant) {
				t.Errorf("New(%d, %d) = level %d, %v, want %d", fleet, tenant, r.Level, err, max(fleet, tenant))
			}
		}
	}
	fleet := guardrails.Options{
		Level: guardrails.Advise, BlockedImports: []string{"a"}, BlockedCalls: []string{"a.f"},
		BlockedPatterns: []string{"fleet"}, Conditions: []guardrails.Condition{
			{Name: "fleets", On: guardrails.OnInputs, Require: "inputs.x < 10"},
		},
	}
	tenant := guardrails.Options{
		BlockedImports: []string{"b"}, BlockedCalls: []string{"b.f"},
		BlockedPatterns: []string{"tenant"}, Conditions: []guardrails.Condition{
			{Name: "tenants", On: guardrails.OnInputs, Require: "inputs.x < 5"},
		},
	}
	p := guardrails.Program{
		Imports: []guardrails.Import{{Module: "a", Line: 1}, {Module: "b", Line: 2}},
		Calls:   []guardrails.Use{{Name: "a.f", Line: 3}, {Name: "b.f", Line: 4}},
		Code:    "\n\n\n\nfleet\ntenant",
	}
	want := []string{
		"blocked_import 1", "blocked_import 2", "blocked_call 3", "blocked_call 4", "blocked_pattern 5",
		"blocked_pattern 6",
	}
	if diff := cmp.Diff(want, broken(t, fleet, tenant, p)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	r, err := guardrails.New(fleet, tenant)
	if err != nil {
		t.Fatal(err)
	}
	for inputs, want := range map[string]int{`{"x":4}`: 0, `{"x":7}`: 1, `{"x":12}`: 2} {
		if got := r.Data(t.Context(), guardrails.OnInputs, guardrails.Data{Inputs: []byte(inputs)}); len(got) != want {
			t.Errorf("findings for %s = %v, want %d", inputs, got, want)
		}
	}
}

// The level Off finds nothing, network access lifts the rule of that name, and findings are bounded.
func TestProgram(t *testing.T) {
	advise := guardrails.Options{Level: guardrails.Advise}
	p := guardrails.Program{Imports: []guardrails.Import{{Module: "socket", Line: 1}}}
	if got := broken(t, guardrails.Options{}, guardrails.Options{}, p); got != nil {
		t.Errorf("findings of level off = %q, want none", got)
	}
	if diff := cmp.Diff([]string{"network 1"}, broken(t, advise, guardrails.Options{}, p)); diff != "" {
		t.Errorf("findings without network access (-want +got):\n%s", diff)
	}
	p.Network = true
	if got := broken(t, advise, guardrails.Options{}, p); got != nil {
		t.Errorf("findings with network access = %q, want none", got)
	}
	for line := range 1000 {
		for _, name := range []string{"eval", "exec"} {
			p.Calls = append(p.Calls, guardrails.Use{Name: name, Line: line + 1})
		}
	}
	if got := broken(t, advise, guardrails.Options{}, p); len(got) != 100 || got[99] != "dynamic_code 100" {
		t.Errorf("findings = %q, want 100, one for each line", got)
	}
}

// pay returns the data of a call of bank/pay.
func pay(args string) guardrails.Data {
	return guardrails.Data{Server: "bank", Tool: "pay", Names: []string{"Bank/pay", "bank/pay"}, Args: []byte(args)}
}

func TestConditions(t *testing.T) {
	r, err := guardrails.New(guardrails.Options{Level: guardrails.Advise, Conditions: []guardrails.Condition{
		{Name: "small", On: guardrails.OnArguments, Tools: []string{"bank/pay"}, Require: "args.amount <= 1000"},
		{
			Name: "own", On: guardrails.OnArguments, Tools: []string{"crm/*"}, Require: "args.tenant == tenant",
			Message: "ask for your own data",
		},
		{Name: "year", On: guardrails.OnInputs, Require: "inputs.year >= 2000"},
		{Name: "short", On: guardrails.OnResult, Require: "size(result.rows) < 3 && output == ''"},
	}}, guardrails.Options{})
	if err != nil {
		t.Fatalf("New = %v, want nil", err)
	}
	for _, c := range []struct {
		name, on string
		data     guardrails.Data
		want     string // the finding
	}{
		{"small payment", guardrails.OnArguments, pay(`{"amount":1000}`), ""},
		{
			"large payment", guardrails.OnArguments,
			pay(`{"amount":1001}`),
			"the program breaks the rule small: arguments must satisfy args.amount <= 1000",
		},
		{
			"no amount", guardrails.OnArguments,
			pay(`{}`),
			"the program breaks the rule small: arguments must satisfy args.amount <= 1000 (no such key: amount)",
		},
		{"another tool", guardrails.OnArguments, guardrails.Data{Names: []string{"bank/list"}, Args: []byte(`{}`)}, ""},
		{
			"own data", guardrails.OnArguments,
			guardrails.Data{Tenant: "a", Names: []string{"crm/x"}, Args: []byte(`{"tenant":"a"}`)},
			"",
		},
		{
			"another's data", guardrails.OnArguments,
			guardrails.Data{Tenant: "a", Names: []string{"crm/x"}, Args: []byte(`{"tenant":"b"}`)},
			"the program breaks the rule own: ask for your own data",
		},
		{
			"no inputs", guardrails.OnInputs,
			guardrails.Data{},
			"the program breaks the rule year: inputs must satisfy inputs.year >= 2000 (no such key: year)",
		},
		{"inputs", guardrails.OnInputs, guardrails.Data{Inputs: []byte(`{"year":2026}`)}, ""},
		{"result", guardrails.OnResult, guardrails.Data{Result: []byte(`{"rows":[1,2]}`)}, ""},
		{
			"long result", guardrails.OnResult,
			guardrails.Data{Result: []byte(`{"rows":[1,2,3]}`)},
			"the program breaks the rule short: result must satisfy size(result.rows) < 3 && output == ''",
		},
	} {
		var found []string
		for _, f := range r.Data(t.Context(), c.on, c.data) {
			found = append(found, f.String())
		}
		if got := strings.Join(found, "; "); got != c.want {
			t.Errorf("%s: finding %q, want %q", c.name, got, c.want)
		}
	}
	off, err := guardrails.New(guardrails.Options{Conditions: []guardrails.Condition{
		{Name: "year", On: guardrails.OnInputs, Require: "inputs.year >= 2000"},
	}}, guardrails.Options{})
	if err != nil {
		t.Fatalf("New = %v, want nil", err)
	}
	if got := off.Data(t.Context(), guardrails.OnInputs, guardrails.Data{}); got != nil {
		t.Errorf("findings of level off = %v, want none", got)
	}
}
