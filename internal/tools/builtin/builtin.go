// Package builtin holds the MCP servers that are part of the program: calculator and weather, in
// process and, as `codefleet tool-server NAME`, on standard input and output. They are servers like
// any other: their modules are generated, their calls go through the broker. (The tools that act on
// a task's workspace are modules that run in its box: see the servers directory.)
package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Version is what the servers say of themselves.
const version = "1.0.0"

// Options are those of the built-in servers; the zero value is that of the program.
type Options struct {
	Now  func() time.Time // what day it is, for weather; nil: time.Now
	Live Live             // where weather comes from; nil: made-up samples that say so
}

var all = map[string]func(Options) *mcp.Server{
	"calculator": func(Options) *mcp.Server { return calculator() },
	"weather":    weather,
}

// Names returns the names of the servers, sorted.
func Names() []string { return slices.Sorted(maps.Keys(all)) }

// New makes the server called name. One server can serve any number of connections.
func New(name string, opts Options) (*mcp.Server, error) {
	build, ok := all[name]
	if !ok {
		return nil, fmt.Errorf("no tool server %q; there are %s", name, strings.Join(Names(), ", "))
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return build(opts), nil
}

// Serve runs the server called name on a pair of streams until in ends or ctx does.
func Serve(ctx context.Context, name string, opts Options, in io.ReadCloser, out io.WriteCloser) error {
	server, err := New(name, opts)
	if err != nil {
		return err
	}
	return server.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
}

func newServer(name string) *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: name, Version: version}, nil)
}

// number is the result of a tool whose value is one number: structured results of the older
// protocol versions are objects, and the mark in the schema says that "result" is the value.
type number struct {
	Result float64 `json:"result"`
}

var numberSchema = json.RawMessage(`{"type":"object","properties":{"result":{"type":"number"}},"required":["result"],"x-fastmcp-wrap-result":true}`)

// readOnly is what all tools of this package are.
func readOnly(openWorld bool) *mcp.ToolAnnotations {
	no := false
	return &mcp.ToolAnnotations{
		ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &openWorld,
	}
}
