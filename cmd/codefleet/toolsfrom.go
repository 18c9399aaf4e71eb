package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/toolbox"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/toolsearch"
)

// toolsFrom selects the tools that a command is about.
type toolsFrom struct {
	local  bool
	server string
}

// toolSource lists tools: of a fleet, or of a directory of this host.
type toolSource interface {
	Tools(ctx context.Context, o client.ToolsOptions) (client.ToolList, error)
	SearchTools(ctx context.Context, o client.SearchToolsOptions, queries ...string) (client.ToolSearch, error)
	ReadTool(ctx context.Context, server, name string) (client.Tool, error)
}

// fromTools calls fn with the fleet, or with the servers directory if there is none. A fleet that no flag or
// variable names and that does not answer left its file behind: it prints a note and uses the directory.
func (a *app) fromTools(ctx context.Context, from toolsFrom, fn func(toolSource) error) error {
	if from.local {
		return fn(localTools{a})
	}
	found, err := client.Locate(a.fleet)
	if errors.Is(err, client.ErrNoFleet) {
		return fn(localTools{a})
	}
	if err != nil {
		return noFleet(err)
	}
	c, err := a.connect(ctx, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	err = fn(c)
	asking := a.fleet != "" || a.lookup("CODEFLEET_FLEET") != "" || a.lookup("CODEFLEET_URL") != ""
	if _, refused := errors.AsType[*client.APIError](err); err == nil || refused || asking || ctx.Err() != nil {
		return markCall(err)
	}
	fmt.Fprintf(a.stderr,
		"note: the fleet at %s does not answer; these are the tools of the settings' servers directory\n", found.URL)
	return fn(localTools{a})
}

// localTools is the catalogue of the settings' servers directory.
type localTools struct{ *app }

func (a localTools) Tools(ctx context.Context, o client.ToolsOptions) (client.ToolList, error) {
	listing, err := a.catalogue(ctx)
	if err == nil && o.Server != "" {
		err = unknown(listing.CheckServer(o.Server))
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
		return client.Tool{}, unknown(err)
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

// catalogue reads the catalogue of the settings.
func (a *app) catalogue(ctx context.Context) (*tools.Listing, error) {
	c, err := a.load()
	if err != nil {
		return nil, err
	}
	catalogue, err := toolbox.OpenCatalogue(c.Execution.ServersDir, c.Data)
	if err != nil {
		return nil, err
	}
	return catalogue.Read(ctx)
}

const unknownHint = "codefleet tools" // the hint for an unknown name of a tool or server

// unknown returns the error for such a name.
func unknown(err error) error {
	if err == nil {
		return nil
	}
	return &failure{code: errcode.ExitUsage, message: err.Error(), hint: unknownHint}
}
