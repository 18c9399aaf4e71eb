package registered_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/registered"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// offer returns the offer of a process that started at the given second.
func offer(t *testing.T, server string, second int, names ...string) []byte {
	t.Helper()
	o := tools.Offer{Server: server, Started: t0.Add(time.Duration(second) * time.Second)}
	for _, n := range names {
		o.Tools = append(o.Tools, tools.OfferedTool{Definition: tools.Definition{
			Name: n, Description: fmt.Sprint("started at ", second), InputSchema: json.RawMessage(`{"type":"object"}`),
		}})
	}
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newRegistry(send registered.Send) *registered.Registry {
	return registered.New(send, slog.New(slog.DiscardHandler), nil)
}

func ids(r *registered.Registry, tenant string) (out []string) {
	for _, l := range r.List(tenant) {
		out = append(out, l.Server+"/"+l.Definition.Name)
	}
	return out
}

func TestToolsAreListedWhileOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(nil)
		if r.Overlay("acme") != nil {
			t.Error("Overlay without offers is set, want nil")
		}
		r.Update("acme", "one", offer(t, "crm", 1, "find", "count"))
		first := r.Overlay("acme")
		if got := ids(r, "acme"); !slices.Equal(got, []string{"crm/count", "crm/find"}) ||
			first.Files["crm/find.py"] == nil {
			t.Fatalf("tools = %v, files %d, want crm/count and crm/find", got, len(first.Files))
		}
		// Neither the start nor the end of another process with the same tools changes anything.
		r.Update("acme", "two", offer(t, "crm", 1, "find", "count"))
		if r.Overlay("acme") != first {
			t.Error("a second process with the same tools changed the overlay, want the same")
		}
		r.Update("acme", "two", nil)
		if r.Overlay("acme") != first || r.Overlay("other") != nil {
			t.Error("the end of the second process changed an overlay, want the same")
		}
		for range 5 { // the tools stay while the process offers them
			time.Sleep(3 * time.Second) //nolint:forbidigo // virtual time, of synctest
			r.Update("acme", "one", offer(t, "crm", 1, "find", "count"))
		}
		if r.Overlay("acme") != first {
			t.Error("an unchanged offer changed the overlay, want the same")
		}
		time.Sleep(11 * time.Second) //nolint:forbidigo // virtual time, of synctest
		if r.Overlay("acme") != nil || ids(r, "acme") != nil {
			t.Error("tools of a process that sends no more offers are listed, want none")
		}
	})
}

// If definitions differ, the process that started last wins.
func TestTwoDefinitions(t *testing.T) {
	r := newRegistry(nil)
	r.Update("acme", "a-new", offer(t, "crm", 2, "find"))
	r.Update("acme", "z-old", offer(t, "crm", 1, "find", "count"))
	list := r.List("acme")
	if len(list) != 2 || list[0].Definition.Description != "started at 1" ||
		list[1].Definition.Description != "started at 2" {
		t.Errorf("tools = %+v, want the definitions of the latest processes", list)
	}
}

// The catalogue has a sanitised description of the server. If descriptions differ, the process that started
// last wins.
func TestAbout(t *testing.T) {
	r := newRegistry(nil)
	about := func() tools.About {
		listing, _, err := tools.Extend(tools.NewListing(nil), r.Overlay("acme"))
		if err != nil || len(listing.Tools) != 1 {
			t.Fatalf("Extend = %+v, %v; want one tool", listing, err)
		}
		return listing.Tools[0].About
	}
	describe := func(second int, title, description string) []byte {
		o := tools.Offer{Server: "crm", About: tools.About{Title: title, Description: description}}
		if err := json.Unmarshal(offer(t, "crm", second, "find"), &o); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	r.Update("acme", "silent", offer(t, "crm", 9, "find"))
	if got := about(); got != (tools.About{}) {
		t.Errorf("About without a description = %+v, want none", got)
	}
	r.Update("acme", "second", describe(2, "Customers\u202e", strings.Repeat("x", 3000)))
	r.Update("acme", "first", describe(1, "Old", "old"))
	want := tools.About{Title: "Customers<U+202E>", Description: strings.Repeat("x", 1997) + "…"}
	if got := about(); got != want {
		t.Errorf("About = %+v, want %+v", got, want)
	}
	if got := r.List("acme")[0].Definition.Hash(); got != hashOf(t, offer(t, "crm", 9, "find")) {
		t.Errorf("the tool's hash %s depends on its server's description, want it independent", got)
	}
	r.Update("acme", "second", nil)
	if got := about(); got != (tools.About{Title: "Old", Description: "old"}) {
		t.Errorf("About = %+v, want the other process's description", got)
	}
}

// hashOf returns the definition hash of the first tool in an offer.
func hashOf(t *testing.T, data []byte) string {
	t.Helper()
	var o tools.Offer
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	return o.Tools[0].Hash()
}

// For any offer, each tool becomes a module in its server's directory, or is broken.
func TestHostileOffers(t *testing.T) {
	r := newRegistry(nil)
	for i, o := range []string{
		`{"server":"../x","tools":[{"name":"a","inputSchema":{"type":"object"}}]}`,
		`{"server":"__init__","tools":[]}`,
		`{"server":"crm","tools":[{"name":"../../a","inputSchema":{"type":"object"}}]}`,
		`{"server":"crm","tools":[{"name":"__init__","inputSchema":{"type":"object"}}]}`,
		`{"server":"crm","tools":[{"name":"a.b","inputSchema":{"type":"object"}}]}`,
		`{"server":"crm","tools":[{"name":"no_object","inputSchema":{"type":"string"}}]}`,
		`{"server":"crm","tools":[{"name":"forever","timeout_s":1e9,"inputSchema":{"type":"object"}}]}`,
		`{"server":"crm","tools":[{"name":"fine","description":"\"\"\"\nimport os\n\u202e",` +
			`"inputSchema":{"type":"object","properties":{"class":{"type":"string"}}}}]}`,
		`{"server":"crm","tools":[{"name":"class","inputSchema":{"type":"object"}}]}`,
		`not json`, `[]`, `{"server":7}`,
	} {
		r.Update("acme", fmt.Sprint("p", i), []byte(o))
	}
	if got := ids(r, "acme"); !slices.Equal(got, []string{"crm/class", "crm/fine"}) {
		t.Errorf("tools = %v, want crm/class and crm/fine", got)
	}
	o := r.Overlay("acme")
	for name := range o.Files {
		if !strings.HasPrefix(name, "crm/") || strings.Count(name, "/") != 1 {
			t.Errorf("overlay has the file %q, want files of crm", name)
		}
	}
	if len(o.Broken) < 8 {
		t.Errorf("broken = %v, want at least 8", o.Broken)
	}
	listing, used, err := tools.Extend(tools.NewListing(nil), o)
	if err != nil || len(used) != len(o.Files) || len(listing.Tools) != 2 ||
		listing.Tools[0].State != tools.Registered {
		t.Errorf("Extend = %+v, %d files, %v; want all files and two registered tools", listing, len(used), err)
	}
	// A server of the fleet keeps its name.
	base := tools.NewListing([]tools.Tool{
		{Server: "crm", Name: "mine", Module: "servers.crm.mine", State: tools.Local},
	})
	listing, used, err = tools.Extend(base, o)
	if err != nil || len(used) != 0 || len(listing.Tools) != 1 || len(listing.Broken) != len(o.Broken)+1 {
		t.Errorf("Extend over the same server = %+v, %d files, %v; want no file and one more broken server",
			listing.Tools, len(used), err)
	}
}

// A fleet's server without approved tools is not in the catalogue. Its name is still reserved, because calls go
// to the fleet's server.
func TestReservedServers(t *testing.T) {
	reserved := []string{"github", "my-server"}
	r := registered.New(nil, slog.New(slog.DiscardHandler), func() []string { return reserved })
	for i, server := range []string{"github", "my_server", "crm"} { // my-server has the directory my_server
		r.Update("acme", fmt.Sprint("p", i), offer(t, server, i, "delete_repository"))
	}
	o := r.Overlay("acme")
	if got := ids(r, "acme"); !slices.Equal(got, []string{"crm/delete_repository"}) ||
		o.Files["github/delete_repository.py"] != nil {
		t.Errorf("tools = %v, want only crm/delete_repository", got)
	}
	if len(o.Broken) != 2 || !strings.Contains(o.Broken[0].Message, `the fleet has a server "github"`) ||
		!strings.Contains(o.Broken[1].Message, `the fleet has a server "my_server"`) {
		t.Errorf("broken = %v, want the reserved names", o.Broken)
	}
	reserved = append(reserved, "crm") // the fleet gets another server while it runs
	if got := ids(r, "acme"); len(got) != 0 {
		t.Errorf("tools = %v, want none after crm became a server of the fleet", got)
	}
}

func TestTooManyProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(nil)
		for i := range 100 {
			r.Update("acme", fmt.Sprint("p", i), offer(t, fmt.Sprint("s", i), 1, "f"))
		}
		r.Update("other", "p", offer(t, "mine", 1, "f"))
		if n := len(r.List("acme")); n != 64 || len(r.List("other")) != 1 {
			t.Errorf("%d tools of 100 processes, want 64; tools of another tenant = %v, want 1", n, r.List("other"))
		}
		time.Sleep(11 * time.Second) //nolint:forbidigo // virtual time, of synctest
		r.Update("acme", "new", offer(t, "fresh", 1, "f"))
		if got := ids(r, "acme"); !slices.Equal(got, []string{"fresh/f"}) {
			t.Errorf("tools after the other processes expired = %v, want fresh/f", got)
		}
		var many []string
		for i := range tools.MaxOffered + 10 {
			many = append(many, fmt.Sprint("f", i))
		}
		r.Update("acme", "new", offer(t, "fresh", 1, many...))
		if n := len(r.List("acme")); n != tools.MaxOffered {
			t.Errorf("%d tools, want %d", n, tools.MaxOffered)
		}
	})
}

// Rejected tools do not count towards the limit of tools, and a tool at the limit can still be redefined.
func TestOnlyValidToolsCount(t *testing.T) {
	r := newRegistry(nil)
	var invalid, valid []string
	for i := range tools.MaxOffered {
		invalid, valid = append(invalid, fmt.Sprint("../", i)), append(valid, fmt.Sprint("f", i))
	}
	r.Update("acme", "invalid", offer(t, "crm", 1, invalid...))
	r.Update("acme", "valid", offer(t, "crm", 2, valid...))
	r.Update("acme", "new", offer(t, "crm", 3, "f0", "more"))
	list := r.List("acme")
	if len(list) != tools.MaxOffered || list[0].Definition.Description != "started at 3" {
		t.Errorf("%d tools, the first is %+v, want %d with the latest definition", len(list), list[:min(len(list), 1)],
			tools.MaxOffered)
	}
}

// At the limit of tenants, those whose processes have died make room for others.
func TestTooManyTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := registered.New(nil, slog.New(slog.NewTextHandler(&log, nil)), nil)
		data := offer(t, "crm", 1, "find")
		for i := range 10_000 {
			r.Update(fmt.Sprint("t", i), "p", data)
		}
		for range 2 {
			r.Update("acme", "p", data)
		}
		if r.Overlay("acme") != nil || strings.Count(log.String(), "too many tenants") != 1 {
			t.Errorf("overlay of one tenant too many = %v, want none and one line in the log:\n%s",
				r.Overlay("acme"), log.String())
		}
		time.Sleep(11 * time.Second) //nolint:forbidigo // virtual time, of synctest
		r.Update("acme", "p", data)
		if r.Overlay("acme") == nil {
			t.Error("the tools of a tenant are missing after the others expired, want them")
		}
	})
}

func TestCall(t *testing.T) {
	var replies []any // a string or an error
	r := newRegistry(func(context.Context, string, string, string, []byte) ([]byte, error) {
		reply := replies[0]
		replies = replies[1:]
		if err, ok := reply.(error); ok {
			return nil, err
		}
		return []byte(reply.(string)), nil
	})
	r.Update("acme", "one", offer(t, "crm", 1, "find"))
	call := func(list ...any) (tools.Result, *tools.UpstreamError) {
		t.Helper()
		replies = list
		res, err := r.Call(t.Context(),
			tools.Request{Tenant: "acme", Server: "crm", Tool: "find", Args: json.RawMessage(`{}`)})
		u, _ := errors.AsType[*tools.UpstreamError](err)
		if err != nil && u == nil || len(replies) > 0 {
			t.Fatalf("Call = %v, %d replies left; want an UpstreamError and none", err, len(replies))
		}
		return res, u
	}
	if res, err := call(`{"value":{"a":1}}`); err != nil || string(res.Structured) != `{"a":1}` {
		t.Errorf("Call with a value = %s, %v; want {\"a\":1}", res.Structured, err)
	}
	if res, err := call(`{"code":"failed","error":"no"}`); err != nil || !res.IsError || res.Content[0].Text != "no" {
		t.Errorf("Call with a tool error = %+v, %v; want the tool's error", res, err)
	}
	if _, err := call(registered.ErrNotBegun, `{"code":"changed"}`, `{"value":1}`); err != nil {
		t.Errorf("Call with the definition in another process = %v, want nil", err)
	}
	changed := slices.Repeat([]any{`{"code":"changed"}`}, 8)
	if _, err := call(changed...); err == nil || err.Reason != tools.Drifted || err.Sent {
		t.Errorf("Call without the definition in any process = %+v, want drifted and not sent", err)
	}
	for reply, want := range map[any]tools.Reason{
		registered.ErrNotServed: tools.Down, "": tools.Protocol, "[]": tools.Protocol, `{"value":`: tools.Protocol,
		`{"code":"large"}`: tools.TooLarge, errors.New("cut"): tools.Lost,
	} {
		if _, err := call(reply); err == nil || err.Reason != want || err.Sent == (want == tools.Down) {
			t.Errorf("Call with the reply %v = %+v, want %s", reply, err, want)
		}
	}
}

func TestCallWithoutResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(func(ctx context.Context, _, _, _ string, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		start := time.Now()
		_, err := r.Call(t.Context(), tools.Request{Tenant: "acme", Server: "crm", Tool: "find"})
		u, ok := errors.AsType[*tools.UpstreamError](err)
		if !ok || u.Reason != tools.Timeout || !u.Sent || time.Since(start) != time.Minute {
			t.Errorf("Call returned %v after %s, want a timeout after a minute", err, time.Since(start))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the task ended")
		cancel(gone)
		if _, err := r.Call(ctx, tools.Request{Tenant: "acme", Server: "crm", Tool: "find"}); !errors.Is(err, gone) {
			t.Errorf("Call for a task that ended = %v, want %v", err, gone)
		}
	})
}
