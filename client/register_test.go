package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/tools"
)

type question struct {
	Name string          `json:"name" jsonschema:"of the customer"`
	Max  int             `json:"max,omitempty"`
	More json.RawMessage `json:"more,omitempty"`
}

type found struct {
	Emails []string `json:"emails"`
}

func TestRegisterTools(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	c, err := client.New(t.Context(),
		client.Options{URL: f.NATS.URL(), NATSUser: ingesttest.NATSUser, NATSPassword: ingesttest.NATSPassword})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	offers := make(chan []byte, 10)
	stop, err := f.Jobs.WatchOffers(
		func(tenant, _ string, data []byte) { offers <- append([]byte(tenant+" "), data...) },
	)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	find := client.NewTool(
		client.ToolInfo{Name: "find", Description: "Find.", Annotations: client.ToolAnnotations{ReadOnly: true}},
		func(_ context.Context, q question) (found, error) {
			if q.Max < 0 {
				return found{}, errors.New("max is negative")
			}
			return found{Emails: []string{strings.Repeat(q.Name, max(q.Max, 1)) + "@example.org"}}, nil
		},
	)
	r, err := c.RegisterTools(t.Context(),
		client.RegisterOptions{Title: "Customers", Description: "Who buys\u202e what."}, "crm", find)
	if err != nil {
		t.Fatal(err)
	}
	offer, ok := strings.CutPrefix(string(<-offers), "default ")
	var o tools.Offer
	if err := json.Unmarshal([]byte(offer), &o); err != nil || !ok || o.Server != "crm" || len(o.Tools) != 1 {
		t.Fatalf("offer = %s, %v; want one tool of the server crm", offer, err)
	}
	if want := (tools.About{Title: "Customers", Description: "Who buys<U+202E> what."}); o.About != want {
		t.Errorf("offer describes the server as %+v, want %+v", o.About, want)
	}
	var schema map[string]any
	if err := json.Unmarshal(o.Tools[0].InputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type":                 "object",
		"required":             []any{"name"},
		"additionalProperties": false,
		"properties": map[string]any{
			"name": map[string]any{"type": "string", "description": "of the customer"},
			"max":  map[string]any{"type": "integer"},
			"more": true,
		},
	}
	if diff := cmp.Diff(want, schema); diff != "" {
		t.Errorf("input schema (-want +got):\n%s", diff)
	}
	large := fmt.Sprintf(`{"args":{"name":"x","max":%d}}`, jobs.MaxToolResponse)
	for call, want := range map[string]string{
		large:                              `{"error":"the response is 1048613 bytes; the limit is 1048576","code":"large"}`,
		`{"args":{"name":"ada"}}`:          `{"value":{"emails":["ada@example.org"]}}`,
		`{"args":{"name":"ada","max":-1}}`: `{"error":"max is negative","code":"failed"}`,
		`{"hash":"sha256:old","args":{"name":1}}`:                  `{"error":"this process has a different definition of the tool","code":"changed"}`,
		`{"hash":"` + o.Tools[0].Hash() + `","args":{"name":"x"}}`: `{"value":{"emails":["x@example.org"]}}`,
	} {
		got, err := f.Jobs.CallTool(t.Context(), "default", jobs.ToolName{Server: "crm", Tool: "find"}, []byte(call))
		if err != nil || string(got) != want {
			t.Errorf("call %s = %s, %v, want %s", call, got, err, want)
		}
	}
	r.Close()
	if _, err := f.Jobs.CallTool(t.Context(), "default", jobs.ToolName{Server: "crm", Tool: "find"}, nil); err == nil {
		t.Error("a call after Close succeeded, want an error")
	}
}

func TestRegisterToolsErrors(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	overNATS, err := client.New(t.Context(),
		client.Options{URL: f.NATS.URL(), NATSUser: ingesttest.NATSUser, NATSPassword: ingesttest.NATSPassword})
	if err != nil {
		t.Fatal(err)
	}
	defer overNATS.Close()
	tool := func(name string) client.ToolFunc {
		return client.NewTool(client.ToolInfo{Name: name},
			func(context.Context, struct{}) (string, error) { return "", nil })
	}
	text := client.NewTool(client.ToolInfo{Name: "text"},
		func(context.Context, string) (string, error) { return "", nil })
	channel := client.NewTool(client.ToolInfo{Name: "channel"},
		func(context.Context, struct{ C chan int }) (string, error) { return "", nil })
	for name, c := range map[string]struct {
		server string
		list   []client.ToolFunc
		want   string
	}{
		"no tools":     {"crm", nil, "the list of tools is empty"},
		"server":       {"Crm", []client.ToolFunc{tool("f")}, "lower-case letter"},
		"name":         {"crm", []client.ToolFunc{tool("a.b")}, "its name must be a letter"},
		"twice":        {"crm", []client.ToolFunc{tool("f"), tool("f")}, "listed twice"},
		"no struct":    {"crm", []client.ToolFunc{text}, "its input schema must have the type object"},
		"no JSON type": {"crm", []client.ToolFunc{channel}, "channel"},
	} {
		if _, err := overNATS.RegisterTools(t.Context(), client.RegisterOptions{}, c.server, c.list...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: RegisterTools = %v, want an error with %q", name, err, c.want)
		}
	}
	overHTTP, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	_, err = overHTTP.RegisterTools(t.Context(), client.RegisterOptions{}, "crm", tool("f"))
	if e, ok := errors.AsType[*client.APIError](err); !ok || e.Code != "nats_only" || e.Hint == "" {
		t.Errorf("over HTTP = %v, want nats_only", err)
	}
}
