package jobs

import (
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

// The cases follow the specification of the binding.
func TestDecodeNATS(t *testing.T) {
	base := func(more ...string) nats.Header {
		h := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/s"}, "ce-type": {"t"}}
		for i := 0; i < len(more); i += 2 {
			if more[i+1] == "" {
				delete(h, more[i])
				continue
			}
			h[more[i]] = append(h[more[i]], more[i+1])
		}
		return h
	}
	json := nats.Header{"Content-Type": {"application/cloudevents+json; charset=utf-8"}}
	for _, c := range []struct {
		name   string
		header nats.Header
		data   string
		want   string // summary, or a part of the error after "!"
	}{
		{"binary", base("ce-datacontenttype", "application/json"), `{"a":1}`, `1 /s t application/json {"a":1}`},
		{"no data", base(), "", "1 /s t  "},
		{"extension", base("ce-tenant", "acme"), "x", "1 /s t  x tenant=acme"},
		{"percent", base("ce-subject", "Euro%20%E2%82%AC%20%F0%9F%98%80%22%25"), "", "1 /s t   subject=Euro € 😀\"%"},
		{"decoded once", base("ce-subject", "%2520"), "", "1 /s t   subject=%20"},
		{"lone percent", base("ce-subject", "100%"), "", "1 /s t   subject=100%"},
		{"lower hex", base("ce-subject", "%e2%82%ac"), "", "1 /s t   subject=€"},
		{"header case", nats.Header{
			"Ce-Specversion": {"1.0"}, "CE-ID": {"1"},
			"cE-source": {"/s"}, "Ce-Type": {"t"},
		}, "", "1 /s t  "},
		{
			"structured", json,
			`{"specversion":"1.0","id":"1","source":"/s","type":"t","tenant":"acme","data":{"a":1}}`,
			`1 /s t  {"a":1} tenant=acme`,
		},
		{
			"structured text", json,
			`{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"text/plain","data":"\u00e9","n":null}`,
			"1 /s t text/plain é",
		},
		{
			"structured base64", json,
			`{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"eyJhIjoxfQ=="}`, `1 /s t  {"a":1}`,
		},
		{
			"structured, any case",
			nats.Header{"content-type": {"APPLICATION/CloudEvents+JSON"}},
			`{"specversion":"1.0","id":"1","source":"/s","type":"t"}`, "1 /s t  ",
		},
		{"other content type is binary", base("Content-Type", "application/json"), "x", "1 /s t  x"},

		{"nothing", nil, `{"code":"x"}`, "!not a CloudEvent"},
		{"no id", base("ce-id", ""), "", "!id"},
		{"no source", base("ce-source", ""), "", "!source"},
		{"no type", base("ce-type", ""), "", "!type"},
		{"version", nats.Header{"ce-specversion": {"0.3"}}, "", "!specversion"},
		{"time", base("ce-time", "yesterday"), "", "!attribute time"},
		{"extension name", base("ce-My_Ext", "x"), "", "!my_ext"},
		{"data as attribute", base("ce-data", "x"), "", "!attribute data"},
		{"control", base("ce-subject", "a%0D%0Ab"), "", "!control character"},
		{"utf-8", base("ce-subject", "%ff"), "", "!not UTF-8"},
		{"twice", base("ce-id", "2"), "", "!more than once"},
		{"twice by case", base("Ce-Id", "2"), "", "!more than once"},
		{"late", base("ce-time", "9999-12-31T23:59:59-01:00"), "", "!attribute time"},
		{"early", base("ce-time", "0000-06-01T00:00:00Z"), "", "!attribute time"},
		{"control in a type", base("ce-datacontenttype", "text/plain;%0Aa=b"), "", "!control character"},
		{"long", base("ce-subject", strings.Repeat("x", maxAttribute+1)), "", "!longer than"},
		{
			"batch",
			nats.Header{"Content-Type": {"application/cloudevents-batch+json"}},
			"[]",
			"!only application/cloudevents+json",
		},
		{"structured, not JSON", json, `{`, "!structured event"},
		{"structured, no id", json, `{"specversion":"1.0","source":"/s","type":"t"}`, "!id"},
		{
			"structured, control", json,
			`{"specversion":"1.0","id":"a\nb","source":"/s","type":"t"}`, "!control character",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev, err := decodeNATS(c.header, []byte(c.data))
			if part, bad := strings.CutPrefix(c.want, "!"); bad {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("decodeNATS = %v, want an error with %q", err, part)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := summary(ev); got != c.want {
				t.Errorf("decodeNATS = %q, want %q", got, c.want)
			}
		})
	}
}

// TestRefusalsQuoteNothing checks that the error for an event, which is logged, names the attribute or the position,
// and quotes no value.
func TestRefusalsQuoteNothing(t *testing.T) {
	long := strings.Repeat("SECRET", 70_000)
	structured := func(members string) (nats.Header, string) {
		return nats.Header{"Content-Type": {event.ApplicationCloudEventsJSON}}, "{" + members + "}"
	}
	with := func(name, value string) (nats.Header, string) {
		h := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/s"}, "ce-type": {"t"}}
		h[name] = []string{value}
		return h, ""
	}
	const valid = `"specversion":"1.0","id":"1","source":"/s","type":"t"`
	for _, c := range []struct {
		in   func(string, string) (nats.Header, string)
		name string // of the attribute or header, or the members
		text string
		want string
	}{
		{with, "ce-time", "SECRET", "attribute time: want a time such as 2006-01-02T15:04:05Z"},
		{with, "ce-specversion", long, "attribute specversion: only 1.0 is supported"},
		{with, "ce-source", "%25%ZZSECRET", "attribute source: want a URI reference"},
		{with, "ce-my_attribute", "SECRET", "attribute my_attribute: its name or its value is not allowed"},
		{with, "Content-Type", "application/cloudevents+SECRET", "content type of another event format: " +
			"only application/cloudevents+json is supported"},
	} {
		header, data := c.in(c.name, c.text)
		if _, err := decodeNATS(header, []byte(data)); err == nil || err.Error() != c.want {
			t.Errorf("%s: decodeNATS = %.500v, want %s", c.name, err, c.want)
		}
	}
	for members, want := range map[string]string{
		valid + `,"data":{"password":"SECRET" oops}`: "structured event: not valid JSON at byte 84",
		valid + `,"time":"` + long + `"`:             "attribute time: want a time such as 2006-01-02T15:04:05Z",
		valid + `,"data_base64":"SECRET!"`:           "attribute data_base64: want base64 in a string",
		valid + `,"data_base64":1`:                   "attribute data_base64: want base64 in a string",
		valid + `,"data_base64":null`:                "attribute data_base64: want base64 in a string",
		valid + `,"data":1,"data_base64":"AA=="`:     "structured event: it has both data and data_base64",
		valid + `,"datacontenttype":"a/b","data":1`: "structured event: data that is not JSON must be a string, " +
			"or base64 in data_base64",
		valid + `,"n":1.5`:                         "attribute n: its name or its value is not allowed",
		valid + `,"":1`:                            "attribute : its name or its value is not allowed",
		valid + `,"type":["SECRET"]`:               "attribute type: its name or its value is not allowed",
		valid + `,"my_SECRET":{"SECRET":1}`:        "attribute my_SECRET: its name or its value is not allowed",
		`"specversion":"SECRET"`:                   "attribute specversion: only 1.0 is supported",
		`"source":"%ZZSECRET","specversion":"1.0"`: "attribute source: want a URI reference",
		`"id":"SECRET"`:                            "attribute specversion: only 1.0 is supported",
	} {
		header, data := structured(members)
		if _, err := decodeNATS(header, []byte(data)); err == nil || err.Error() != want {
			t.Errorf("%.100s: decodeNATS = %.500v, want %s", members, err, want)
		}
	}
}

// TestLogged checks that the log of a refused event has no value of it.
func TestLogged(t *testing.T) {
	for data, want := range map[string]string{
		`{"SECRET":1,"SECRET":2}`: "bad_data: data",
		`1e999`:                   "bad_data: data",
	} {
		ev := taskEvent("1", data)
		ev.SetType("com.example.own")
		err := new(Client).checkNonTask(t.Context(), "acme", ev)
		if err == nil || logged(err) != want {
			t.Errorf("%s: logged(%v) is not %s", data, err, want)
		}
	}
}

func summary(ev event.Event) string {
	s := strings.Join([]string{ev.ID(), ev.Source(), ev.Type(), ev.DataContentType(), string(ev.Data())}, " ")
	if ev.Subject() != "" {
		s += " subject=" + ev.Subject()
	}
	if v, ok := ev.Extensions()["tenant"]; ok {
		s += " tenant=" + v.(string)
	}
	return s
}

func TestEncodeNATS(t *testing.T) {
	ev := event.New()
	ev.SetID("a b")
	ev.SetSource("/s")
	ev.SetType("t")
	ev.SetSubject("100% \"€\" ~!")
	ev.SetTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	ev.SetExtension("n", 5)
	if err := ev.SetData("application/json", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	got, data, err := encodeNATS(ev)
	if err != nil {
		t.Fatal(err)
	}
	want := nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {"a%20b"}, "ce-source": {"/s"}, "ce-type": {"t"},
		"ce-subject": {"100%25%20%22%E2%82%AC%22%20~!"}, "ce-time": {"2026-01-02T03:04:05.000006Z"},
		"ce-datacontenttype": {"application/json"}, "ce-n": {"5"},
	}
	if d := cmp.Diff(want, got); d != "" || string(data) != "{}" {
		t.Errorf("encodeNATS (-want +got):\n%s data %s", d, data)
	}
	if _, _, err := encodeNATS(event.New()); err == nil {
		t.Error("encodeNATS of an empty event = nil, want an error")
	}
}

func TestRoundTrip(t *testing.T) {
	text := rapid.StringMatching(`[^\x00-\x1f\x7f-\x9f]{1,20}`)
	rapid.Check(t, func(t *rapid.T) {
		ev := event.New()
		ev.SetID(text.Draw(t, "id"))
		ev.SetSource("/" + rapid.StringMatching(`[a-z%]{0,9}`).Draw(t, "source"))
		ev.SetType(text.Draw(t, "type"))
		ev.SetSubject(text.Draw(t, "subject"))
		ev.SetExtension("idempotencykey", text.Draw(t, "key"))
		ev.SetTime(time.Unix(0, rapid.Int64Range(0, 1<<60).Draw(t, "time")).UTC())
		if data := rapid.SliceOf(rapid.Byte()).Draw(t, "data"); len(data) > 0 {
			ev.DataEncoded = data
		}
		if ev.Validate() != nil {
			t.Skip("not an event")
		}
		header, data, err := encodeNATS(ev)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeNATS(header, data)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(ev.String(), got.String()); d != "" || ev.Source() != got.Source() {
			t.Errorf("round trip (-want +got):\n%s", d)
		}
	})
}

// TestTextsAtTheirLimits checks that an event is accepted only if its readers accept it, and that its headers leave
// room for the fleet's own.
func TestTextsAtTheirLimits(t *testing.T) {
	valid := func(change func(*event.Event)) event.Event {
		ev := taskEvent("1", `{"code":"x"}`)
		change(&ev)
		return ev
	}
	for name, ev := range map[string]event.Event{
		"accents":     valid(func(ev *event.Event) { ev.SetID(strings.Repeat("é", 3000)) }),
		"characters":  valid(func(ev *event.Event) { ev.SetSubject(strings.Repeat("漢", maxAttribute/3)) }),
		"longest":     valid(func(ev *event.Event) { ev.SetExtension("a", strings.Repeat("x", maxAttribute)) }),
		"latest time": valid(func(ev *event.Event) { ev.SetTime(time.Date(9998, 12, 31, 0, 0, 0, 0, time.UTC)) }),
	} {
		if _, _, err := encodeReadable(ev); err != nil {
			t.Errorf("%s: encodeReadable = %v, want nil", name, err)
		}
	}
	west := time.FixedZone("", -3600)
	long := strings.Repeat("x", maxAttribute+1)
	for name, c := range map[string]struct {
		ev   event.Event
		want string
	}{
		"year 10000": {
			valid(func(ev *event.Event) { ev.SetTime(time.Date(9999, 12, 31, 23, 59, 59, 0, west)) }), "attribute time",
		},
		"content type": {
			valid(func(ev *event.Event) { ev.SetDataContentType("application/json; a=" + long) }),
			"attribute datacontenttype: longer",
		},
		"schema": {
			valid(func(ev *event.Event) { ev.SetDataSchema("https://example.com/" + long) }),
			"attribute dataschema: longer",
		},
		"short extensions": {
			valid(func(ev *event.Event) {
				for i := range 1500 {
					ev.SetExtension("e"+strconv.Itoa(i), strings.Repeat("x", 24))
				}
			}), "all attributes together",
		},
		"long extensions": {
			valid(func(ev *event.Event) {
				for i := range 6 {
					ev.SetExtension("e"+strconv.Itoa(i), long[1:])
				}
			}), "all attributes together",
		},
	} {
		if _, _, err := encodeReadable(c.ev); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: encodeReadable = %.200v, want an error with %q", name, err, c.want)
		}
	}
}

// TestAttributesLeaveRoom checks that the headers of the largest events take at most maxAttributes.
func TestAttributesLeaveRoom(t *testing.T) {
	ev := taskEvent("1", `{"code":"x"}`)
	ev.SetTime(time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC))
	ev.SetDataSchema("https://example.com/" + strings.Repeat("s", 8000))
	for i := 0; checkEvent(ev) == nil; i++ {
		ev.SetExtension("e"+strconv.Itoa(i), strings.Repeat("é", 100))
	}
	names := slices.Sorted(maps.Keys(ev.Extensions()))
	ev.SetExtension(names[0], nil)
	header, _, err := encodeNATS(ev)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for name, values := range header {
		size += len(name) + len(values[0]) + len(": \r\n")
	}
	if size > maxAttributes || size < maxAttributes-1000 {
		t.Errorf("the headers of the largest event take %d bytes, want nearly %d", size, maxAttributes)
	}
}

// decodeNATS returns an error, or an event that survives a round trip.
func FuzzDecodeNATS(f *testing.F) {
	f.Add("ce-specversion: 1.0\nce-id: 1\nce-source: /s\nce-type: t\nce-tenant: a%20b", []byte(`{}`))
	f.Add("Content-Type: application/cloudevents+json",
		[]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1},"x":5}`))
	f.Add("Content-Type: application/cloudevents+json",
		[]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"AA=="}`))
	f.Fuzz(func(t *testing.T, lines string, data []byte) {
		h := nats.Header{}
		for line := range strings.Lines(lines) {
			key, value, _ := strings.Cut(line, ":")
			h[key] = append(h[key], textproto.TrimString(value))
		}
		ev, err := decodeNATS(h, data)
		if err != nil {
			return
		}
		header, data, err := encodeNATS(ev)
		if err != nil {
			t.Fatalf("encodeNATS(%v) = %v, want nil", ev, err)
		}
		again, err := decodeNATS(header, data)
		if err != nil {
			t.Fatalf("decodeNATS(%v) = %v, want nil", header, err)
		}
		if ev.ID() != again.ID() || ev.Source() != again.Source() || string(ev.Data()) != string(again.Data()) ||
			len(ev.Extensions()) != len(again.Extensions()) {
			t.Errorf("round trip: got %v, want %v", again, ev)
		}
	})
}
