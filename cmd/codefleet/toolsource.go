package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly/tooling"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/toolsearch"
)

// toolFlags select the tools that a command works on.
type toolFlags struct {
	local  bool   // the tools of execution.servers_dir instead of the fleet's
	server string // only tools of this server; empty selects all
}

// toolSource provides the tools of a fleet or of a directory on this host.
type toolSource interface {
	Tools(ctx context.Context, o client.ToolsOptions) (client.ToolList, error)
	SearchTools(ctx context.Context, o client.SearchToolsOptions, queries ...string) (client.ToolSearch, error)
	ReadTool(ctx context.Context, server, name string) (client.Tool, error)
}

// fromTools calls fn with the fleet's tools or, with --local or without a fleet, with the tools of
// execution.servers_dir. If a fleet that neither a flag nor the environment names (its fleet.json was in the data
// directory) does not respond, it was probably killed. fromTools then prints a note and uses execution.servers_dir.
func fromTools[T any](ctx context.Context, a *app, flags toolFlags, fn func(toolSource) (T, error)) (v T, err error) {
	options, err := a.locate()
	if flags.local || errors.Is(err, client.ErrNoFleet) {
		return fn(localTools{a})
	}
	if err != nil {
		return v, noFleet(err)
	}
	c, err := a.connect(ctx, retryTime) // makes no request over HTTP, so an unreachable fleet fails in fn
	if err != nil {
		return v, err
	}
	defer c.Close()
	v, err = fn(c)
	_, refused := errors.AsType[*client.APIError](err)
	if err == nil || refused || a.namesFleet() || ctx.Err() != nil {
		return v, markCall(err)
	}
	fmt.Fprintf(a.stderr,
		"note: the fleet at %s does not respond; these are the tools of execution.servers_dir\n",
		text.HideCredentials(options.URL))
	return fn(localTools{a})
}

// localTools is the catalogue of execution.servers_dir.
type localTools struct{ *app }

func (a localTools) Tools(ctx context.Context, o client.ToolsOptions) (client.ToolList, error) {
	listing, err := a.catalogue(ctx)
	if err == nil && o.Server != "" {
		err = unknownTool(listing.CheckServer(o.Server))
	}
	if err != nil {
		return client.ToolList{}, err
	}
	return ingest.ListTools(listing, o.Server, selection.Detail(o.Detail)), nil
}

func (a localTools) ReadTool(ctx context.Context, server, name string) (client.Tool, error) {
	listing, err := a.catalogue(ctx)
	if err != nil {
		return client.Tool{}, err
	}
	t, err := listing.Lookup(server, name)
	if err != nil {
		return client.Tool{}, unknownTool(err)
	}
	return ingest.DescribeTool(t, selection.DetailFull), nil
}

func (a localTools) SearchTools(
	ctx context.Context, o client.SearchToolsOptions, queries ...string,
) (client.ToolSearch, error) {
	listing, err := a.catalogue(ctx)
	if err != nil {
		return client.ToolSearch{}, err
	}
	found, err := toolsearch.New(nil).Index(listing).Select(ctx, selection.Request{
		Queries: queries, Detail: selection.Detail(o.Detail), Limit: o.Limit, Explain: o.Explain,
	})
	if err != nil {
		return client.ToolSearch{}, err
	}
	return ingest.FoundTools(found), nil
}

// catalogue reads the tools of execution.servers_dir.
func (a localTools) catalogue(ctx context.Context) (*tools.Listing, error) {
	c, err := a.load()
	if err != nil {
		return nil, err
	}
	return readCatalogue(ctx, c)
}

// loadTools reads the configuration for the commands that check or change the servers directory. If --fleet or the
// environment names the fleet.json of a fleet of this host, the servers directory is that fleet's, unless
// execution.servers_dir is set.
func (a *app) loadTools() (*config.Config, error) {
	path, origin := a.fleet, "--fleet "+a.fleet
	if path == "" {
		path, origin = a.lookup("CODEFLEET_FLEET"), "CODEFLEET_FLEET"
	}
	if path == "" && a.lookup("CODEFLEET_URL") != "" {
		fmt.Fprintln(a.stderr, "note: the servers directory is that of this host; "+
			"to copy it to workers on other hosts, run `"+a.withFlags("codefleet tools publish")+"`")
	}
	if path == "" {
		return a.load()
	}
	f, err := a.readFleetFile(path)
	if err != nil {
		return nil, err
	}
	c, err := a.load()
	if err != nil || f.Data == "" || c.Execution.ServersDir != "" {
		return c, err
	}
	return a.loadSilently(config.Flag{Key: "data", Value: f.Data, Name: origin})
}

// readCatalogue reads the servers directory.
func readCatalogue(ctx context.Context, c *config.Config) (*tools.Listing, error) {
	catalogue, err := tooling.Catalogue(c)
	if err != nil {
		return nil, err
	}
	return catalogue.Read(ctx)
}

// unknownHint returns the hint for an unknown tool or server.
func unknownHint() string { return errcode.Next(errcode.UnknownTool).Command }

// unknownTool turns the error of a lookup into a usage error with a hint. It returns nil for nil.
func unknownTool(err error) error {
	if err == nil {
		return nil
	}
	return usage("%v", err).try(unknownHint())
}
