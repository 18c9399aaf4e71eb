package privacy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/guardrails/privacy"
)

// recognizing returns the tokens of a task in a fleet whose recognizer is respond. It counts the requests.
func recognizing(t *testing.T, respond http.HandlerFunc) (tokens *privacy.Tokens, requests *atomic.Int32) {
	t.Helper()
	requests = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		respond(w, r)
	}))
	t.Cleanup(server.Close)
	f, err := privacy.NewFilter(privacy.Options{
		Key: []byte("key"), TTL: time.Hour,
		Fleet: privacy.Settings{
			Mode: privacy.Broker, Types: append(privacy.Types(), privacy.Person, privacy.Place),
		},
		Recognizer: &privacy.Recognizer{URL: server.URL, Timeout: 5 * time.Second, MinScore: 0.5},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f.Task("acme", "1"), requests
}

// find responds like the service: it finds each Ada and Oslo, in characters.
func find(w http.ResponseWriter, r *http.Request) {
	var in struct{ Text, Language string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Language != "en" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	type entity struct {
		Type  string  `json:"entity_type"`
		Start int     `json:"start"`
		End   int     `json:"end"`
		Score float64 `json:"score"`
	}
	list := []entity{{"DATE_TIME", 0, 1, 1}, {"PERSON", 0, 1, 0.2}}
	for name, kind := range map[string]string{"Ada Løvelace": "PERSON", "Oslo": "GPE"} {
		for at := 0; ; {
			i := strings.Index(in.Text[at:], name)
			if i < 0 {
				break
			}
			start := utf8.RuneCountInString(in.Text[:at+i])
			list = append(list, entity{kind, start, start + utf8.RuneCountInString(name), 0.9})
			at += i + len(name)
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func TestRecognizer(t *testing.T) {
	tokens, requests := recognizing(t, find)
	raw := json.RawMessage(`{"é":["Ada Løvelace lives in Oslo","ada@example.org","Oslo"],"Ada Løvelace":1,"surname":"Byron"}`)
	got, err := tokens.ReplaceJSON(t.Context(), raw)
	want := regexp.MustCompile(`^\{"é":\["\[PERSON_\w+\] lives in \[PLACE_\w+\]","\[EMAIL_\w+\]","\[PLACE_\w+\]"\],` +
		`"\[PERSON_\w+\]":1,"surname":"\[PERSON_\w+\]"\}$`)
	if err != nil || !want.Match(got) {
		t.Fatalf("ReplaceJSON(%s) = %s, %v, want %s", raw, got, err, want)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests for one value, want 1", n)
	}
	if back, err := tokens.RestoreJSON(got); err != nil || string(back) != string(raw) {
		t.Errorf("RestoreJSON(%s) = %s, %v, want %s", got, back, err, raw)
	}
	if again := tokens.Replace(t.Context(), string(got)); again != string(got) {
		t.Errorf("Replace(%s) = %s, want it unchanged", got, again)
	}
	many := json.RawMessage(`["` + strings.Repeat(`Oslo `, 30_000) + `","` + strings.Repeat("x ", 30_000) + `Oslo"]`)
	if got, err := tokens.ReplaceJSON(t.Context(), many); err != nil || strings.Contains(string(got), "Oslo") {
		t.Errorf("ReplaceJSON of a value above the limit of a request = %.80s, %v, want no Oslo", got, err)
	}
}

// If the service fails, texts that may have names are hidden whole, and can be restored.
func TestRecognizerFails(t *testing.T) {
	for name, respond := range map[string]http.HandlerFunc{
		"status":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"outside": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`[{"entity_type":"PERSON","start":3,"end":999,"score":1}]`))
		},
		"negative": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`[{"entity_type":"PERSON","start":-3,"end":2,"score":1}]`))
		},
		"endless": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := fmt.Fprint(w, strings.Repeat(" ", 1<<20)); err != nil {
					return
				}
			}
		},
	} {
		tokens, _ := recognizing(t, respond)
		raw := json.RawMessage(`["Ada ada@example.org","12.5","[EMAIL_000000000000]",3]`)
		got, err := tokens.ReplaceJSON(t.Context(), raw)
		want := regexp.MustCompile(`^\["\[UNCHECKED_\w+\]","12.5","\[EMAIL_000000000000\]",3\]$`)
		if err != nil || !want.Match(got) {
			t.Errorf("%s: ReplaceJSON(%s) = %s, %v, want %s", name, raw, got, err, want)
		}
		if back, err := tokens.RestoreJSON(got); err != nil || string(back) != string(raw) {
			t.Errorf("%s: RestoreJSON(%s) = %s, %v, want %s", name, got, back, err, raw)
		}
	}
}

// TestRecognizerFailsLater checks that tokens in the first texts stay if a later text is too large for a request.
func TestRecognizerFailsLater(t *testing.T) {
	tokens, requests := recognizing(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[{"entity_type":"PERSON","start":0,"end":20,"score":1}]`)) // the token
	})
	raw := json.RawMessage(`["[EMAIL_000000000000]","` + strings.Repeat("x ", 60_000) + `"]`)
	got, err := tokens.ReplaceJSON(t.Context(), raw)
	want := regexp.MustCompile(`^\["\[EMAIL_000000000000\]","\[UNCHECKED_\w+\]"\]$`)
	if err != nil || !want.Match(got) || requests.Load() != 1 {
		t.Errorf("ReplaceJSON() = %.120s, %v after %d requests; want %s after 1", got, err, requests.Load(), want)
	}
}

// TestOverlaps checks that no part of a name leaks if it overlaps a token or other values, and that tokens stay whole.
func TestOverlaps(t *testing.T) {
	for _, c := range []struct{ text, entities, want string }{
		{"Ada Byron <[EMAIL_3f9c21a07b44]>", `{"entity_type":"PERSON","start":0,"end":32,"score":1}`, `P <T>`},
		{"Ada Byron <[EMAIL_3f9c21a07b44]>", `{"entity_type":"PERSON","start":0,"end":18,"score":1}`, `P <T>`},
		{"<[EMAIL_3f9c21a07b44]> Ada Byron", `{"entity_type":"PERSON","start":18,"end":32,"score":1}`, `<T> P`},
		{"Ada [EMAIL_3f9c21a07b44] Byron", `{"entity_type":"PERSON","start":0,"end":30,"score":1}`, `P T P`},
		{"Ada Byron ada@example.org", `{"entity_type":"PERSON","start":0,"end":13,"score":1}`, `P E`},
		{"ada@example.org Ada Byron", `{"entity_type":"PERSON","start":12,"end":25,"score":1}`, `E P`},
		{"Ada Byron Oslo Bergen Trondheim", `{"entity_type":"PERSON","start":0,"end":9,"score":1},
			{"entity_type":"LOC","start":8,"end":19,"score":1},
			{"entity_type":"PERSON","start":18,"end":31,"score":1}`, `PLP`},
		{"Ada Byron Oslo", `{"entity_type":"PERSON","start":0,"end":14,"score":1},
			{"entity_type":"LOC","start":4,"end":9,"score":1},{"entity_type":"LOC","start":10,"end":14,"score":1}`, `P`},
	} {
		tokens, _ := recognizing(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("[" + c.entities + "]"))
		})
		got := tokens.Replace(t.Context(), c.text)
		want := regexp.MustCompile("^" + strings.NewReplacer("P", `\[PERSON_\w+\]`, "L", `\[PLACE_\w+\]`,
			"E", `\[EMAIL_\w+\]`, "T", `\[EMAIL_3f9c21a07b44\]`).Replace(c.want) + "$")
		if !want.MatchString(got) {
			t.Errorf("Replace(%q) with %s = %q, want %s", c.text, c.entities, got, want)
		}
		back, err := tokens.RestoreJSON(json.RawMessage(`"` + got + `"`))
		if err != nil || string(back) != `"`+c.text+`"` {
			t.Errorf("RestoreJSON(%q) = %s, %v, want %q", got, back, err, c.text)
		}
	}
}

// ReplaceAtOnce asks no recognizer: it replaces a text whole if the text may contain names.
func TestReplaceAtOnce(t *testing.T) {
	tokens, requests := recognizing(t, find)
	if got := tokens.ReplaceAtOnce("to Ada Løvelace"); !regexp.MustCompile(`^\[UNCHECKED_\w+\]$`).MatchString(got) {
		t.Errorf("ReplaceAtOnce of a name = %q, want only a token", got)
	}
	if got := tokens.ReplaceAtOnce("3/7"); got != "3/7" {
		t.Errorf("ReplaceAtOnce without letters = %q, want the same text", got)
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}
