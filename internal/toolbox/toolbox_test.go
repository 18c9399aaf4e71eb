package toolbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/toolbox"
	"github.com/codefleet/codefleet/internal/tools"
)

// open returns a toolbox with the built-in tools and an allow-list for each tenant. Tenants that operators create may
// use all tools.
func open(t *testing.T, allow map[string][]string) *toolbox.Toolbox {
	t.Helper()
	local, err := toolbox.OpenCatalogue("", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := toolbox.New(toolbox.Options{
		Source: local, Log: slog.New(slog.DiscardHandler),
		Allow: func(tenant string) ([]string, bool) {
			if list, ok := allow[tenant]; ok {
				return list, true
			}
			return []string{"*"}, false
		},
	})
	t.Cleanup(b.Close)
	return b
}

// toolFleet starts a fleet with the built-in tools, and returns clients of two tenants. The first may call all tools,
// the second those that the allow-list other permits.
func toolFleet(t *testing.T, other []string) (f *ingesttest.Fleet, ours, theirs *client.Client) {
	t.Helper()
	box := open(t, map[string][]string{"default": {"*"}, "other": other})
	f = ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) { o.Tools = box })
	if err := box.Join(f.Jobs); err != nil {
		t.Fatal(err)
	}
	connect := func(token string) *client.Client {
		c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return f, connect(ingesttest.Token), connect(ingesttest.Other)
}

// TestTenantsSeeOnlyAllowedTools checks the list of tools, the definition of one tool, and a search.
func TestTenantsSeeOnlyAllowedTools(t *testing.T) {
	_, ours, theirs := toolFleet(t, []string{"calculator/*", "weather/get_weather"})
	ctx := t.Context()
	for name, c := range map[string]struct {
		client  *client.Client
		servers []string
		tools   int
		match   string // the tool that the search finds
	}{
		"all":  {ours, []string{"calculator", "database", "filesystem", "weather"}, 11, "weather/get_forecast"},
		"some": {theirs, []string{"calculator", "weather"}, 4, ""},
	} {
		list, err := c.client.Tools(ctx, client.ToolsOptions{Detail: client.DetailName})
		if err != nil {
			t.Fatal(err)
		}
		var servers []string
		for _, tool := range list.Tools {
			servers = append(servers, tool.Server)
		}
		if servers = slices.Compact(servers); len(list.Tools) != c.tools || !slices.Equal(servers, c.servers) {
			t.Errorf("%s: %d tools of %v, want %d of %v", name, len(list.Tools), servers, c.tools, c.servers)
		}
		found, err := c.client.SearchTools(ctx, client.SearchToolsOptions{Detail: client.DetailName},
			"weather forecast", "read a file")
		if err != nil {
			t.Fatal(err)
		}
		match := ""
		for _, g := range found.Servers {
			for _, h := range g.Tools {
				if h.ID == "weather/get_forecast" {
					match = h.ID
				}
				if !slices.Contains(c.servers, g.Server) {
					t.Errorf("%s: Search = %s, want only tools that the tenant may call", name, h.ID)
				}
			}
			if g.Server == "weather" && name == "some" && g.More != 0 {
				t.Errorf("%s: a search reports %d more tools of weather, want none", name, g.More)
			}
		}
		if match != c.match || found.Available != c.tools {
			t.Errorf("%s: a search among %d tools finds %q, want %q among %d",
				name, found.Available, match, c.match, c.tools)
		}
		_, err = c.client.ReadTool(ctx, "database", "query")
		if e, refused := errors.AsType[*client.APIError](err); name == "some" &&
			(!refused || e.Code != "unknown_tool") || name == "all" && err != nil {
			t.Errorf("%s: ReadTool(database/query) = %v; want unknown_tool for some, and the tool for all", name, err)
		}
	}
}

// TestTenantsShareListings checks that tenants with the same allow-list share a listing, and so its index.
func TestTenantsShareListings(t *testing.T) {
	some, others := []string{"calculator/*"}, []string{"weather/*"}
	box := open(t, map[string][]string{"a": some, "b": some, "c": others, "d": {"*"}})
	listing := map[string]*tools.Listing{}
	for _, tenant := range []string{"a", "b", "c", "d", "unknown"} {
		var err error
		if listing[tenant], err = box.Read(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	if listing["a"] != listing["b"] || len(listing["a"].Tools) != 3 || len(listing["c"].Tools) != 2 ||
		len(listing["d"].Tools) != 11 || len(listing["unknown"].Tools) != 0 {
		t.Errorf("a and b share a listing: %v; a, c, d and another tenant see %d, %d, %d, %d tools, want 3, 2, 11, 0",
			listing["a"] == listing["b"], len(listing["a"].Tools), len(listing["c"].Tools),
			len(listing["d"].Tools), len(listing["unknown"].Tools))
	}
	if all, err := box.All(t.Context(), "a"); err != nil || len(all.Tools) != 11 {
		t.Errorf("All = %+v, %v; want 11 tools, also those that the tenant may not call", all, err)
	}
}

// failing is a source that has a catalogue from before it failed.
type failing struct {
	tools.Source
	listing *tools.Listing
}

func (f failing) Read(context.Context) (*tools.Listing, error) {
	return f.listing, errors.New("the bucket does not respond")
}

// If the source fails, its last catalogue is served, and the error is logged at most once a minute.
func TestFailingSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		source := failing{listing: tools.NewListing([]tools.Tool{{Server: "crm", Name: "find"}})}
		box := toolbox.New(toolbox.Options{
			Source: source, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Allow: func(string) ([]string, bool) { return []string{"*"}, true },
		})
		defer box.Close()
		for minute := range 2 {
			for range 10 {
				read, err := box.Read(t.Context(), "default")
				all, errAll := box.All(t.Context(), "default")
				if read != source.listing || all != source.listing || err != nil || errAll != nil {
					t.Errorf("Read = %v, %v, All = %v, %v, want the last catalogue", read, err, all, errAll)
				}
			}
			if n := strings.Count(log.String(), "the bucket does not respond"); n != minute+1 {
				t.Errorf("the error was logged %d times in %d minutes, want once a minute", n, minute+1)
			}
			<-time.After(time.Minute)
		}
	})
}

// A tenant may use tools only if the settings name it, or an operator has created it and has not removed it.
func TestUnknownTenantsHaveNoTools(t *testing.T) {
	box := open(t, map[string][]string{"default": {"calculator/*"}})
	check := func(when, tenant string, want []string) {
		t.Helper()
		list, err := box.Allow(t.Context(), tenant)
		if err != nil || !slices.Equal(list, want) {
			t.Errorf("%s: Allow(%s) = %v, %v, want %v", when, tenant, list, err, want)
		}
		listing, err := box.Read(t.Context(), tenant)
		if err != nil || (len(listing.Tools) > 0) != (len(want) > 0) {
			t.Errorf("%s: %s sees %d tools, %v; want those of %v", when, tenant, len(listing.Tools), err, want)
		}
	}
	check("before Join", "default", []string{"calculator/*"})
	check("before Join", "new", nil)
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) { o.Tools = box })
	if err := box.Join(f.Jobs); err != nil {
		t.Fatal(err)
	}
	check("unknown", "new", nil)
	if _, err := f.Jobs.CreateTenant(t.Context(), "new", ""); err != nil {
		t.Fatal(err)
	}
	check("created", "new", []string{"*"})
	check("created", "default", []string{"calculator/*"})
	if err := f.Jobs.RemoveTenant(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	check("removed", "new", nil)
}

// TestSearchUsesHistory checks that a tenant's earlier tasks change its search results, but not another tenant's.
func TestSearchUsesHistory(t *testing.T) {
	f, ours, theirs := toolFleet(t, []string{"*"})
	past, err := json.Marshal(selection.NewPast("prepare the friday numbers for the board",
		[]string{"weather/get_forecast"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Jobs.AppendHistory("default", past); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(ingesttest.WaitTimeout); ; { // it is stored in the background
		stored, err := f.Jobs.History(t.Context(), "default", 1)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("History = %v, %v, want one task", stored, err)
		}
		if len(stored) == 1 {
			break
		}
	}
	got := map[string]string{}
	for name, c := range map[string]*client.Client{"default": ours, "other": theirs} {
		found, err := c.SearchTools(t.Context(), client.SearchToolsOptions{Explain: true},
			"prepare the numbers of friday for our board")
		if err != nil {
			t.Fatal(err)
		}
		got[name] = "no history"
		for _, g := range found.Servers {
			for _, h := range g.Tools {
				if h.Why.History > 0 {
					got[name] = found.Queries[0].Tools[0] + " first, by history " + h.ID
				}
			}
		}
	}
	want := map[string]string{
		"default": "weather/get_forecast first, by history weather/get_forecast", "other": "no history",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("SearchTools (-want +got):\n%s", d)
	}
}

// TestEmptyServersDir checks that the built-in tools are installed into an empty directory, and into no other.
func TestEmptyServersDir(t *testing.T) {
	count := func(dir string) int {
		local, err := toolbox.OpenCatalogue(dir, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		listing, err := local.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(listing.Tools)
	}
	if got := count(t.TempDir()); got != 11 {
		t.Errorf("tools in an empty directory = %d, want 11", got)
	}
	used := t.TempDir()
	if err := os.WriteFile(filepath.Join(used, "README"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := count(used); got != 0 {
		t.Errorf("tools in a directory with a file = %d, want 0", got)
	}
}
