// Package builtin contains the MCP servers that ship with codefleet: calculator and weather. They run in the
// worker's process or, as `codefleet tool-server NAME`, on standard input and output. As for any other
// server, their modules are generated and their calls pass through the broker. (Tools that act on a task's
// workspace are Python modules that run in the box: see the servers directory.)
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

// version is the version that the servers report.
const version = "1.0.0"

// Options configures the built-in servers.
type Options struct {
	Now       func() time.Time // for weather; the default is time.Now
	OpenMeteo *OpenMeteo       // the source of the weather; if nil, the weather is made up and marked as a sample
}

var constructors = map[string]func(Options) *mcp.Server{
	"calculator": func(Options) *mcp.Server { return calculator() },
	"weather":    weather,
}

// Names returns the sorted names of the servers.
func Names() []string { return slices.Sorted(maps.Keys(constructors)) }

// New returns a new server. It can serve any number of connections.
func New(name string, opts Options) (*mcp.Server, error) {
	build, ok := constructors[name]
	if !ok {
		return nil, fmt.Errorf("unknown tool server %q; valid servers: %s", name, strings.Join(Names(), ", "))
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return build(opts), nil
}

// Serve runs a server on a pair of streams until in or ctx ends.
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

// number is the result of a tool that returns a number. Older versions of the protocol require an object:
// "x-fastmcp-wrap-result" in the schema says that "result" is the value.
type number struct {
	Result float64 `json:"result"`
}

var numberSchema = json.RawMessage(`{"type":"object","properties":{"result":{"type":"number"}}` +
	`,"required":["result"],"x-fastmcp-wrap-result":true}`)

// readOnly returns the annotations of this package's tools.
func readOnly(openWorld bool) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{
		ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: new(false), OpenWorldHint: &openWorld,
	}
}
