package mcp

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	r, _ := newRedactors(Server{
		URL: "https://h.example/mcp?key=in%2Dquery", Headers: map[string]string{
			"A": "Bearer in\\header", "Authorization": "Basic dTppbi1iYXNpYzpwdw==",
		},
		Env: map[string]string{
			"DSN": "redis://u:p%4024681012@h/0", "MYSQL": "root:in-my=sql@tcp(h)/db", "ODBC": "Server=h;Pwd=in-odbc-1;",
			"HOOK": "https://hooks.example/x?sig=in-hook-1", "PGUSER": "postgres://postgres@h/db",
			"SHORT": `a\u0062c\u0064`,
			"AZURE": "h:6380,password=in-azure-1=,ssl=True", "LIBPQ": "host=h password = 'in libpq 1'",
			"BRACES": "Server=h;Pwd={in;odbc-2};", "LATIN": "clé-é😀1",
		},
	})
	for in, want := range map[string]string{
		"p@24681012, p%4024681012, p\\u004024681012":     "(hidden), (hidden), (hidden)",
		"dTppbi1iYXNpYzpwdw== u:in-basic:pw in-basic:pw": "(hidden) (hidden) (hidden)",
		"in-my=sql in-odbc-1 in-hook-1 in-query":         "(hidden) (hidden) (hidden) (hidden)",
		`"in\\header" in\header in\\\\header`:            `"(hidden)" (hidden) (hidden)`,
		`line\nin-odbc-1 \u00e9 %ZZ &x; abcd`:            `line\n(hidden) \u00e9 %ZZ &x; abcd`,
		"postgres https://h.example/mcp":                 "postgres https://h.example/mcp",
		`"https:\/\/h.example\/mcp?key=in%2dquery"`:      `"https://h.example"`,
		"in-odbc-in-odbc-1in-my=sql":                     "in-odbc-(hidden)(hidden)",
		"in-azure-1=; in libpq 1, in;odbc-2":             "(hidden); (hidden), (hidden)",
		`'cl\xe9-\xe9\U0001f6001' cl\xc3\xa9-é😀1`:        "'(hidden)' (hidden)",
		`x\U0001f60 \x5 &lt in-odbc-1 \ud83d \`:          `x\U0001f60 \x5 &lt (hidden) \ud83d \`,
	} {
		if got := r.redact(in); got != want {
			t.Errorf("redact(%s) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{
		`see in\u002dodbc\u00`: "see ", `see p%2540`: "see ", `see \u0069n\\`: "see ", `see cl\U000000`: "see ",
		"nothing": "nothing",
	} {
		if got := r.excerpt(in+"-1", len(in)); got != want {
			t.Errorf("excerpt(%s) = %s, want %s", in, got, want)
		}
	}
}

// Texts that describe a server keep the values of its settings that are not secrets. They contain the secrets neither
// by the name of the setting, nor by their form, nor as the password in an address.
func TestRedactDescriptions(t *testing.T) {
	t.Parallel()
	_, r := newRedactors(Server{
		Headers: map[string]string{
			"Accept": "application/json", "X-Auth": "Token abcdefgh", "X-Version": "beta-2026-01-01",
		},
		Env: map[string]string{
			"AWS_REGION": "us-east-1", "NODE_ENV": "production", "TZ": "Europe/Berlin",
			"MODEL":      "text-embedding-3-small",
			"GITHUB_PAT": "pat-of-us", "DB_PASSWORD": "password-1", "OTHER": "ghp_16C7e42F292c6912E771",
			"TENANT": "0b5e1f2a-9c1d-4e7b-8a3f-1c2d3e4f5a6b", "CACHE": "redis://u:in-cache@production/0",
		},
	})
	plain := "us-east-1 production Europe/Berlin application/json text-embedding-3-small beta-2026-01-01" +
		" (session ID: 1)"
	secret := "pat-of-us password-1 ghp_16C7e42F292c6912E771 abcdefgh 0b5e1f2a-9c1d-4e7b-8a3f-1c2d3e4f5a6b in-cache"
	hidden := strings.Repeat(" (hidden)", 6)
	d := tools.Definition{
		Description: plain + " " + secret,
		InputSchema: json.RawMessage(`{"default":"us-east-1","enumDescriptions":["like password-1"],` +
			`"enum":["password-1"],"required":["password-1"],"type":["password-1"],"$ref":"#/password-1",` +
			`"dependentRequired":{"a":["password-1"]},"x-notes":[{"note":["password-1"]}],"examples":["password-1"]}`),
	}
	r.redactDefinition(&d)
	want := tools.Definition{
		Description: plain + hidden,
		InputSchema: json.RawMessage(`{"$ref":"#/password-1","default":"us-east-1",` +
			`"dependentRequired":{"a":["password-1"]},"enum":["password-1"],"enumDescriptions":["like (hidden)"],` +
			`"required":["password-1"],"type":["password-1"],"x-notes":[{"note":["(hidden)"]}]}`),
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("redactDefinition (-want +got):\n%s", diff)
	}
	about := r.aboutOf(&sdk.InitializeResult{
		ServerInfo: &sdk.Implementation{Name: "n"}, Instructions: plain + " " + secret,
	})
	if about.Instructions != plain+hidden {
		t.Errorf("aboutOf has the instructions %q, want %q", about.Instructions, plain+hidden)
	}
}

// A text that consists of escapes needs little memory besides its size.
func TestRedactLargeText(t *testing.T) { // not parallel: it measures the memory of the process
	r, _ := newRedactors(Server{Env: map[string]string{"KEY": "in-the-text"}})
	text := strings.Repeat(`\n`, 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if r.replace(text) != text {
		t.Error("replace has changed a text without secrets")
	}
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(10*len(text)); got > limit {
		t.Errorf("replace allocated %d bytes for %d bytes of text, want at most %d", got, len(text), limit)
	}
}

// TestExcerptsHaveNoSecrets cuts a text with a secret at each byte.
func TestExcerptsHaveNoSecrets(t *testing.T) {
	r, _ := newRedactors(Server{Env: map[string]string{"KEY": "sec_secret", "OTHER": "secret_key_two"}})
	const text = "with sec_secret and secret_key_two, so"
	for limit := range len(text) + 1 {
		got := r.excerpt(text, limit)
		if want := "with (hidden) and (hidden), so"; !strings.HasPrefix(want, got) {
			t.Errorf("excerpt of %d bytes = %q, want a start of %q", limit, got, want)
		}
	}
}
