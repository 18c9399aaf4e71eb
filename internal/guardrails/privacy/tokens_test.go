package privacy_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/guardrails/privacy"
)

// filter returns a filter of a fleet with the tenants acme (egress) and beta (broker). For others, such as
// gamma, the mode is off.
func filter(t testing.TB, key string) *privacy.Filter {
	t.Helper()
	f, err := privacy.NewFilter(privacy.Options{
		Key: []byte(key), TTL: time.Hour,
		Fleet: privacy.Settings{Types: privacy.Types(), Restore: []string{"mail/*", "bank/pay"}},
		Tenants: map[string]privacy.Settings{
			"acme": {Mode: privacy.Egress},
			"beta": {Mode: privacy.Broker, Restore: []string{"mail/send", "other/tool"}},
		},
	})
	if err != nil {
		t.Fatalf("NewFilter = %v, want nil", err)
	}
	return f
}

// A tenant can raise the mode and shorten the list of tools, and nothing else.
func TestTenantsTighten(t *testing.T) {
	f := filter(t, "key")
	for tenant, want := range map[string]privacy.Mode{
		"acme": privacy.Egress, "beta": privacy.Broker, "gamma": privacy.Off,
	} {
		if got := f.ModeOf(tenant); got != want {
			t.Errorf("ModeOf(%s) = %d, want %d", tenant, got, want)
		}
	}
	if f.Task("gamma", "1") != nil || f.Replacer("gamma") != nil {
		t.Error("a tenant whose mode is off has tokens, want none")
	}
	strict, err := privacy.NewFilter(privacy.Options{
		Key: []byte("key"), TTL: time.Hour,
		Fleet:   privacy.Settings{Mode: privacy.Broker, Types: []privacy.Type{privacy.Card}},
		Tenants: map[string]privacy.Settings{"acme": {Mode: privacy.Off, Types: []privacy.Type{privacy.Email}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strict.ModeOf("acme"); got != privacy.Broker {
		t.Errorf("ModeOf(a tenant with off in a fleet with broker) = %d, want broker", got)
	}
	const text = "ada@example.org 4111111111111111 192.168.0.1"
	for tenant, want := range map[string]string{
		"acme": `^\[EMAIL_\w+\] \[CARD_\w+\] 192.168.0.1$`, "other": `^ada@example.org \[CARD_\w+\] 192.168.0.1$`,
	} {
		if got := strict.Task(tenant, "1").Replace(t.Context(), text); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("Replace(%q) for %s = %q, want %s", text, tenant, got, want)
		}
	}
}

// Replacing and restoring are a round trip for any text and JSON value, and no value stays in the replaced text.
func TestRoundTrip(t *testing.T) {
	f := filter(t, "key")
	values := []string{
		"ada@example.org", "+44 20 7946 0958", "536-90-4399", "4111 1111 1111 1111", "GB29NWBK60161331926819",
		"192.168.0.1", "AKIAQ3EGRIVAZ5XWVJ7P", "tel ٠٣٠ ١٢٣٤٥٦٧",
	}
	rapid.Check(t, func(r *rapid.T) {
		tokens := f.Task("beta", rapid.String().Draw(r, "task"))
		var b strings.Builder
		var used []string
		for range rapid.IntRange(0, 6).Draw(r, "values") {
			v := rapid.SampledFrom(values).Draw(r, "value")
			used = append(used, strings.TrimPrefix(v, "tel "))
			b.WriteString(rapid.String().Draw(r, "text") + "\n" + v + "\n")
		}
		text := b.String()
		raw, err := json.Marshal(map[string]any{text: []any{text, map[string]any{
			"phone": text, "Email": "x", "n": 1e300, "card": 4111111111111111, "ssn": 536904399,
		}}})
		if err != nil {
			r.Fatalf("Marshal = %v, want nil", err)
		}
		masked, err := tokens.ReplaceJSON(t.Context(), raw)
		if err != nil {
			r.Fatalf("ReplaceJSON(%s) = %v, want nil", raw, err)
		}
		for _, v := range append(used, "4111111111111111", "536904399") {
			if strings.Contains(string(masked), v) {
				r.Errorf("ReplaceJSON(%s) = %s, want no %q", raw, masked, v)
			}
		}
		again, err := tokens.ReplaceJSON(t.Context(), masked)
		if err != nil || string(again) != string(masked) {
			r.Errorf("ReplaceJSON(%s) = %s, %v, want it unchanged", masked, again, err)
		}
		back, err := tokens.RestoreJSON(masked)
		if err != nil || !jsonEqual(back, raw) {
			r.Errorf("RestoreJSON(ReplaceJSON(%s)) = %s, %v, want the value", raw, back, err)
		}
	})
}

func jsonEqual(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return string(p) == string(q)
}

// A token is the same within a scope, different outside of it, and only its own scope has the value.
func TestScopes(t *testing.T) {
	const text = "ada@example.org"
	f := filter(t, "key")
	ofTask := f.Task("beta", "1")
	token := ofTask.Replace(t.Context(), text)
	if again := filter(t, "key").Task("beta", "1").Replace(t.Context(), text); again != token {
		t.Errorf("Replace in another process = %s, want %s", again, token)
	}
	others := map[string]string{
		"another task":   f.Task("beta", "2").Replace(t.Context(), text),
		"another tenant": f.Task("acme", "1").Replace(t.Context(), text),
		"another key":    filter(t, "other").Task("beta", "1").Replace(t.Context(), text),
		"the log":        f.Log()(text),
	}
	for scope, other := range others {
		raw := json.RawMessage(`["` + other + `"]`)
		if other == token {
			t.Errorf("Replace(%q) for %s = %s as for the task, want another token", text, scope, other)
		}
		if got, err := ofTask.RestoreJSON(raw); err != nil || string(got) != string(raw) {
			t.Errorf("RestoreJSON(%s), the token of %s = %s, %v, want it unchanged", raw, scope, got, err)
		}
	}
	if unique := slices.Compact(slices.Sorted(maps.Values(others))); len(unique) != len(others) {
		t.Errorf("tokens of different scopes = %v, want different ones", others)
	}
	egress := f.Task("acme", "1").Replace(t.Context(), text)
	if client := f.Replacer("acme")(t.Context(), text); client != egress {
		t.Errorf("tokens for the model and for MCP clients = %s and %s, want the same", egress, client)
	}
	typed := json.RawMessage(`{"to":"[EMAIL_000000000000]","cc":"[EMAIL_1]","bcc":"` + token[:len(token)-2] + `0]"}`)
	if got, err := ofTask.RestoreJSON(typed); err != nil || string(got) != string(typed) {
		t.Errorf("RestoreJSON(%s) = %s, %v, want it unchanged: a user typed these tokens", typed, got, err)
	}
}

func TestReplaceJSON(t *testing.T) {
	tokens := filter(t, "key").Task("beta", "1")
	in := `{"email":"not an address","Phone-Number":491701234567,"order":4111111111111112,"n":[1.50,true,null,"<a>"],` +
		`"mail ada@example.org":{"ssn":""},"phones":["x"],"mobile":["1","2 3"],"phone":12,"at":1700000000000,"a":1,"a":2}`
	got, err := tokens.ReplaceJSON(t.Context(), json.RawMessage(in))
	if err != nil {
		t.Fatalf("ReplaceJSON = %v, want nil", err)
	}
	want := regexp.MustCompile(`^\{"email":"\[EMAIL_\w+\]","Phone-Number":"\[PHONE_\w+\]","order":4111111111111112,` +
		`"n":\[1\.50,true,null,"<a>"\],"mail \[EMAIL_\w+\]":\{"ssn":""\},"phones":\["x"\],` +
		`"mobile":\["\[PHONE_\w+\]","\[PHONE_\w+\]"\],"phone":12,"at":1700000000000,"a":1,"a":2\}$`)
	if !want.Match(got) {
		t.Errorf("ReplaceJSON(%s) = %s, want %s", in, got, want)
	}
	for _, bad := range []string{"", "{", `{"a":1}{}`, `{"a"}`, strings.Repeat("[", 20_000)} {
		if got, err := tokens.ReplaceJSON(t.Context(), json.RawMessage(bad)); err == nil {
			t.Errorf("ReplaceJSON(%.20q) = %s, want an error", bad, got)
		}
	}
}

// TestCardNumbers checks that a card number is found in all forms of a JSON number, and restored in the same form.
func TestCardNumbers(t *testing.T) {
	tokens := filter(t, "key").Task("beta", "1")
	for in, found := range map[string]bool{
		"4111111111111111": true, "-4111111111111111": true, "4111111111111111.0": true, "4111111111111111.00e0": true,
		"4.111111111111111E15": true, "4.111111111111111e+15": true, "41111111111111110e-1": true,
		"4111111111111111.5": false, "4111111111111112.0": false, "4.111111111111111e14": false,
		"4111111111111111e999999999": false, "4e99999999999999999999": false, "-0.0": false, "0e5": false,
	} {
		raw := json.RawMessage(`{"a":[` + in + `]}`)
		got, err := tokens.ReplaceJSON(t.Context(), raw)
		if err != nil || strings.Contains(string(got), "CARD") != found {
			t.Errorf("ReplaceJSON(%s) = %s, %v, want a token %v", raw, got, err, found)
		}
		if again, err := tokens.RestoreJSON(got); err != nil || string(again) != string(raw) {
			t.Errorf("RestoreJSON(%s) = %s, %v, want %s", got, again, err, raw)
		}
	}
}

// JSON in a text, escaped or not, hides no value, and stays JSON.
func TestReplaceText(t *testing.T) {
	tokens := filter(t, "key").Task("acme", "1")
	texts := []string{
		`{"a":"first\nada@example.org\n536-90-4399\t4111111111111111","é":"\u0061da@example.org"}`,
		"```json\n" + `{"a":"first\nada@example.org\n536-90-4399\t4111111111111111"}` + "\n```",
		`log: {\"a\":\"first\\nada@example.org\\t536-90-4399\\r4111111111111111\"}`, "536-90-4399",
	}
	all := tokens.ReplaceTexts(t.Context(), texts...)
	for i, text := range texts {
		got := tokens.ReplaceText(t.Context(), text)
		for _, v := range []string{"da@", "536-90", "41111"} {
			if strings.Contains(got, v) {
				t.Errorf("ReplaceText(%s) = %s, want no %s", text, got, v)
			}
		}
		if all[i] != got {
			t.Errorf("ReplaceTexts(%s) = %s, want %s", text, all[i], got)
		}
		if json.Valid([]byte(text)) && !json.Valid([]byte(got)) {
			t.Errorf("ReplaceText(%s) = %s, want valid JSON", text, got)
		}
	}
}

// Sealed values are restored in another process of the same fleet, for the same task, and until they expire.
func TestSeal(t *testing.T) {
	const text = "ada@example.org and 4111111111111111"
	f := filter(t, "key")
	tokens := f.Task("beta", "1")
	token := tokens.Replace(t.Context(), text)
	tokens.Replace(t.Context(), "bob@example.org")
	sealed, err := tokens.Seal([]byte("no tokens"), []byte(`["`+token+`"]`))
	if err != nil || len(sealed) == 0 || strings.Contains(string(sealed), "ada") {
		t.Fatalf("Seal = %q, %v, want encrypted values", sealed, err)
	}
	if none, err := tokens.Seal([]byte("[EMAIL_000000000000]")); none != nil || err != nil {
		t.Errorf("Seal(no token of this task) = %q, %v, want nothing", none, err)
	}
	raw := json.RawMessage(`["` + token + `"]`)
	for _, c := range []struct {
		of      string
		tokens  *privacy.Tokens
		restore bool
	}{
		{"the same task in another process", filter(t, "key").Task("beta", "1"), true},
		{"another task", f.Task("beta", "2"), false},
		{"another tenant", f.Task("acme", "1"), false},
		{"another key", filter(t, "other").Task("beta", "1"), false},
	} {
		err := c.tokens.Open(sealed)
		got, restoreErr := c.tokens.RestoreJSON(raw)
		if (err == nil) != c.restore || (string(got) == `["`+text+`"]`) != c.restore || restoreErr != nil {
			t.Errorf("%s: Open = %v, RestoreJSON = %s, %v, want restored: %v", c.of, err, got, restoreErr, c.restore)
		}
	}
	if err := f.Task("beta", "1").Open(sealed[1:]); err == nil {
		t.Error("Open(damaged) = nil, want an error")
	}
}

func TestTTL(t *testing.T) {
	f := filter(t, "key")
	synctest.Test(t, func(t *testing.T) {
		tokens := f.Task("beta", "1")
		raw := json.RawMessage(`["` + tokens.Replace(t.Context(), "ada@example.org") + `"]`)
		sealed, err := tokens.Seal(raw)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		later := f.Task("beta", "1")
		if err := later.Open(sealed); err != nil {
			t.Errorf("Open(expired) = %v, want nil", err)
		}
		for name, tokens := range map[string]*privacy.Tokens{"same": tokens, "later": later} {
			if got, err := tokens.RestoreJSON(raw); err != nil || string(got) != string(raw) {
				t.Errorf("%s: RestoreJSON(an expired token) = %s, %v, want it unchanged", name, got, err)
			}
		}
	})
}

// Many tokens of long values do not become unbounded arguments.
func TestRestoreIsBounded(t *testing.T) {
	tokens := filter(t, "key").Task("beta", "1")
	const line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n"
	key := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat(line, 100) + "-----END PRIVATE KEY-----"
	token := tokens.Replace(t.Context(), key)
	if !regexp.MustCompile(`^\[SECRET_\w+\]$`).MatchString(token) {
		t.Fatalf("Replace(private key) = %.60q, want one token", token)
	}
	raw, err := json.Marshal(strings.Repeat(token, 10_000))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tokens.RestoreJSON(raw); err == nil {
		t.Errorf("RestoreJSON of 10,000 tokens of %d bytes = %d bytes, want an error", len(key), len(got))
	}
}

// A value in the model's program is text, whatever it consists of.
func TestRestoreCode(t *testing.T) {
	tokens := filter(t, "key").Task("acme", "1")
	address := "o'bri{en}#@example.org"
	code := "send('" + tokens.Replace(t.Context(), address) + "', \"[EMAIL_000000000000]\")"
	want := `send('o\u0027bri\u007ben\u007d\u0023@example.org', "[EMAIL_000000000000]")`
	if got := tokens.RestoreCode(code); got != want {
		t.Errorf("RestoreCode(%s) = %s, want %s", code, got, want)
	}
	beta := filter(t, "key").Task("beta", "1")
	token := beta.Replace(t.Context(), address)
	if got := beta.RestoreCode(token); got != token {
		t.Errorf("RestoreCode(%s) with the mode broker = %s, want the token", token, got)
	}
}

// The time to replace the values in JSON is proportional to its size. For 10 MB, a busy machine needs a minute or two.
// If the time were proportional to the square of the size, it would need hours.
func TestLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	tokens := filter(t, "key").Task("beta", "1")
	row := `{"name":"Ada","email":"ada@example.org","note":"ordered 12 of 4711 on 2026-11-22"},`
	raw := json.RawMessage("[" + strings.Repeat(row, 10<<20/len(row)) + "0]")
	start := time.Now()
	masked, err := tokens.ReplaceJSON(t.Context(), raw)
	took := time.Since(start)
	if err != nil || strings.Contains(string(masked), "ada@") {
		t.Fatalf("ReplaceJSON of 10 MB = %d bytes, %v, want no address", len(masked), err)
	}
	back, err := tokens.RestoreJSON(masked)
	if err != nil || string(back) != string(raw) {
		t.Errorf("RestoreJSON of 10 MB = %d bytes, %v, want the same %d bytes", len(back), err, len(raw))
	}
	if took > 10*time.Minute {
		t.Errorf("ReplaceJSON of 10 MB took %s, want at most 10 min", took)
	}
}

func FuzzReplaceJSON(f *testing.F) {
	tokens := filter(f, "key").Task("beta", "1")
	for _, s := range []string{`{"email":"a"}`, `["ada@example.org",{"phone":4917012345678}]`, `"\ud800"`, `1e5`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		masked, err := tokens.ReplaceJSON(t.Context(), raw)
		if err != nil {
			return
		}
		back, err := tokens.RestoreJSON(masked)
		if err != nil || !jsonEqual(back, raw) && json.Valid(raw) {
			t.Errorf("RestoreJSON(ReplaceJSON(%q)) = %q, %v, want the value", raw, back, err)
		}
	})
}
