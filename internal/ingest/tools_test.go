package ingest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/schemas"
)

// directory is a catalogue of all tenants except "other", whose catalogue is empty.
type directory struct{ *tools.Catalogue }

func (d directory) Read(ctx context.Context, tenant string) (*tools.Listing, error) {
	if tenant == "other" {
		return tools.NewListing(nil), nil
	}
	return d.Catalogue.Read(ctx)
}

func (d directory) All(ctx context.Context, _ string) (*tools.Listing, error) {
	return d.Catalogue.Read(ctx)
}

func (d directory) Search(ctx context.Context, tenant string, r selection.Request) (selection.Response, error) {
	listing, err := d.Read(ctx, tenant)
	if err != nil {
		return selection.Response{}, err
	}
	var list []selection.Tool
	for _, t := range listing.Tools {
		list = append(list,
			selection.Tool{Server: t.Server, Name: t.Name, Description: t.Description, Signature: t.Signature})
	}
	return selection.Build(list).Select(r)
}

func withTools(t *testing.T) *ingesttest.Fleet {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"mail/send.py": "def send(to: str, text: str = '') -> bool:\n    \"\"\"Send a mail.\n\n    At " +
			"once.\"\"\"\n    return True\n",
		"mail/search.py":  "def search(query: str) -> list:\n    \"\"\"Search the mails.\"\"\"\n    return []\n",
		"math/add.py":     "def add(a: int, b: int) -> int:\n    \"\"\"Add numbers.\"\"\"\n    return a + b\n",
		"math/mistake.py": "def mistake(:\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Tools = directory{tools.OpenCatalogue(dir, tools.Options{})}
	})
}

func TestToolsLevels(t *testing.T) {
	f := withTools(t)
	want := schemas.ToolList{
		Tools: []schemas.Tool{
			{
				ID: "mail/search", Server: "mail", Name: "search", State: "local",
				Import: "from servers.mail import search",
			},
			{ID: "mail/send", Server: "mail", Name: "send", State: "local", Import: "from servers.mail import send"},
		},
		Broken:   []schemas.BrokenTool{{Path: "math/mistake.py", Line: 1, Message: "'(' was never closed"}},
		Warnings: []schemas.ToolWarning{},
	}
	_, got := request(t, f, "GET", "/v1/tools?detail=name&server=mail", nil, nil)
	if diff := cmp.Diff(want, decode[schemas.ToolList](t, got)); diff != "" {
		t.Errorf("tools of a server with detail=name (-want +got):\n%s", diff)
	}
	_, got = request(t, f, "GET", "/v1/tools", nil, nil)
	list := decode[schemas.ToolList](t, got)
	send := schemas.Tool{
		ID: "mail/send", Server: "mail", Name: "send", State: "local", Import: "from servers.mail import send",
		Signature: "send(to: str, text: str = '') -> bool", Description: "Send a mail.",
	}
	if len(list.Tools) != 3 || !cmp.Equal(list.Tools[1], send) {
		t.Errorf("list = %+v, want 3 tools, the second %+v", list.Tools, send)
	}
	_, got = request(t, f, "GET", "/v1/tools/mail/send", nil, nil)
	send.Description, send.Module, send.Function, send.Path = "Send a mail.\n\nAt once.", "servers.mail.send", "send",
		"mail/send.py"
	if diff := cmp.Diff(send, decode[schemas.Tool](t, got)); diff != "" {
		t.Errorf("definition of a tool (-want +got):\n%s", diff)
	}
}

// TestToolsServers checks that the descriptions of servers are listed once for each server, at the level full.
func TestToolsServers(t *testing.T) {
	about := tools.About{Version: "mail 2", Title: "Company mail", Description: "Mails.", Instructions: "Search first."}
	listing := tools.NewListing([]tools.Tool{
		{Server: "mail", Name: "send", About: about},
		{Server: "mail", Name: "search", About: about},
		{Server: "math", Name: "add"},
	})
	want := []schemas.ToolServer{
		{
			Server:       "mail",
			Version:      "mail 2",
			Title:        "Company mail",
			Description:  "Mails.",
			Instructions: "Search first.",
		},
	}
	for detail, want := range map[selection.Detail][]schemas.ToolServer{
		selection.DetailFull: want, selection.DetailDescription: nil, selection.DetailName: nil,
	} {
		if diff := cmp.Diff(want, ingest.ListTools(listing, "", detail).Servers); diff != "" {
			t.Errorf("servers at the level %s (-want +got):\n%s", detail, diff)
		}
	}
	if got := ingest.ListTools(listing, "math", selection.DetailFull).Servers; got != nil {
		t.Errorf("servers of math = %+v, want none", got)
	}
}

func TestToolsSearch(t *testing.T) {
	f := withTools(t)
	_, got := request(t, f, "GET",
		"/v1/tools/search?q=send+a+mail&q=add+numbers+zebra&detail=name&limit=1&explain=true", nil, nil)
	found := decode[schemas.ToolSearch](t, got)
	if len(found.Queries) != 2 || found.Available != 3 {
		t.Fatalf("search = %s, want 2 queries and 3 available tools", got)
	}
	a, b := found.Queries[0], found.Queries[1]
	if a.Tools[0] != "mail/send" || len(a.UnmatchedTerms) != 0 || a.UnmatchedTerms == nil || a.Confidence <= 0 {
		t.Errorf("first query = %+v, want mail/send and no unmatched terms", a)
	}
	if b.Tools[0] != "math/add" || !cmp.Equal(b.UnmatchedTerms, []string{"zebra"}) {
		t.Errorf("second query = %+v, want math/add and the unmatched term zebra", b)
	}
	n := 0
	for _, g := range found.Servers {
		for _, h := range g.Tools {
			if n++; h.Why == nil || h.Signature != "" {
				t.Errorf("match = %+v, want an explanation and no signature", h)
			}
		}
	}
	if n != 2 {
		t.Errorf("%d tools found, want 2, one for each query", n)
	}
}

// TestFoundTools checks that a match at the level full has the tool's parameters and the types of nested arguments.
func TestFoundTools(t *testing.T) {
	const types = "class ShowPointsItem(TypedDict):\n    lat: float"
	found, err := selection.Build([]selection.Tool{{
		Server: "map", Name: "show", Description: "Show points.", Import: "from servers.map import show",
		Signature: "show(points: List[ShowPointsItem]) -> Any", Types: types,
		Params: []selection.Param{{Name: "points", Type: "List[ShowPointsItem]", Required: true}},
	}}).Select(selection.Request{Queries: []string{"show points"}, Detail: selection.DetailFull})
	if err != nil {
		t.Fatal(err)
	}
	want := schemas.ToolMatch{
		ID: "map/show", Tool: "show", Description: "Show points.", Import: "from servers.map import show",
		Signature: "show(points: List[ShowPointsItem]) -> Any", Types: types,
		Params: []schemas.ToolParam{{Name: "points", Type: "List[ShowPointsItem]", Required: true}},
	}
	got := ingest.FoundTools(found).Servers[0].Tools[0]
	got.Score = 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("match at the level full (-want +got):\n%s", diff)
	}
}

func TestToolsRefusals(t *testing.T) {
	f := withTools(t)
	for path, want := range map[string]string{
		"/v1/tools?detail=all":                                  "bad_parameter",
		"/v1/tools?exposed=banana":                              "bad_parameter",
		"/v1/tools?server=male":                                 "unknown_tool",
		"/v1/tools/mail/sent":                                   "unknown_tool",
		"/v1/tools/search":                                      "bad_parameter",
		"/v1/tools/search?q=+":                                  "bad_parameter",
		"/v1/tools/search?q=a&limit=0":                          "bad_parameter",
		"/v1/tools/search?q=a&explain":                          "", // a parameter without a value
		"/v1/tools/search?q=a&explain=maybe":                    "bad_parameter",
		"/v1/tools/search?q=a" + strings.Repeat("&q=a", 20):     "bad_parameter",
		"/v1/tools/search?q=a&q=a&q=a&q=a&detail=contents":      "bad_parameter",
		"/v1/tools/search?q=" + strings.Repeat("a", 20_000):     "",
		"/v1/tools/search?q=b&q=" + strings.Repeat("a", 20_000): "bad_parameter",
	} {
		resp, got := request(t, f, "GET", path, nil, nil)
		e := decode[map[string]any](t, got)
		if code, _ := e["code"].(string); code != want || want == "" != (resp.StatusCode == 200) {
			t.Errorf("GET %s = %d %s, want the code %q", path, resp.StatusCode, got, want)
		}
	}
	// Tenants have different catalogues.
	_, got := request(t, f, "GET", "/v1/tools", map[string]string{"Authorization": "Bearer " + ingesttest.Other}, nil)
	if list := decode[schemas.ToolList](t, got); list.Tools == nil || len(list.Tools) != 0 {
		t.Errorf("tools of another tenant = %s, want none", got)
	}
	bare := ingesttest.Start(t, 0, nil)
	if resp, got := request(t, bare, "GET", "/v1/tools", nil, nil); resp.StatusCode != 501 {
		t.Errorf("GET /v1/tools without a catalogue = %d %s, want 501", resp.StatusCode, got)
	}
}
