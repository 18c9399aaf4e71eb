package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly/tooling"
	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/mcp"
	"github.com/codefleet/codefleet/internal/tools/pygen"
)

const (
	loop = 100                   // calls in one task
	rows = 10_000                // rows of the table that a program reduces to five
	slow = 10 * time.Millisecond // duration of a call of the slow tool

	// loopOf is a program that measures each of 100 calls of a tool, inside the box.
	loopOf = `
import time
from servers.%s import %s as call
result = []
for n in range(100):
    began = time.perf_counter()
    call(n, 1)
    result.append((time.perf_counter() - began) * 1000)
print(42)
`
	// fiveOf is a program that reduces ten thousand rows to five.
	fiveOf = `
import json
from servers.slow import orders
table = orders(inputs["rows"])
if "path" in table:
    table = json.load(open(table["path"]))
result = sorted(table["orders"], key=lambda row: row["amount"])[-5:]
print(42)
`
)

// brokered measures tool calls by programs beside the same calls by a bare MCP client.
func (b *Bench) brokered(ctx context.Context) (err error) {
	url, stopServer, err := slowServer(ctx)
	if err != nil {
		return err
	}
	defer stopServer()
	var approveErr error
	f, stop, err := b.StartFleet(ctx, func(c *config.Config) {
		c.MCPServers = []config.MCPServer{
			{Name: "sums", Command: b.Program, Args: []string{"tool-server", "calculator"}},
			{Name: "slow", URL: url},
		}
		approveErr = approveAll(ctx, c)
	}, process.RunWorker)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if approveErr != nil {
		return approveErr
	}
	c, err := tenantClient(ctx, f, f.File.Tenant)
	if err != nil {
		return err
	}
	defer c.Close()
	callSums, closeSums, err := connectBare(ctx, &sdk.CommandTransport{
		Command: exec.CommandContext(ctx, b.Program, "tool-server", "calculator"),
	})
	if err != nil {
		return err
	}
	defer closeSums()
	callSlow, closeSlow, err := connectBare(ctx, &sdk.StreamableClientTransport{Endpoint: url})
	if err != nil {
		return err
	}
	defer closeSlow()
	if err := b.loops(ctx, c, "sums", "add", callSums); err != nil {
		return err
	}
	if err := b.loops(ctx, c, "slow", "wait", callSlow); err != nil {
		return err
	}
	b.Summarise()
	b.AtMost("T1", "a call in a sandbox − the bare MCP call",
		b.Median("sums.add in a sandbox")-b.Median("sums.add bare"), 1.5, "ms")
	b.AtMost("T2", "100 calls of a tool that takes 10 ms ÷ bare",
		b.Median("100 × slow.wait in a sandbox")/b.Median("100 × slow.wait bare"), 1.2, "×")
	b.AtMost("T2n", "100 calls of a tool that takes no time ÷ bare",
		b.Median("100 × sums.add in a sandbox")/b.Median("100 × sums.add bare"), 1.2, "×")
	return b.table(ctx, c, callSlow)
}

// loops measures 100 calls by a program in a box and 100 calls by the bare client, in turns.
func (b *Bench) loops(ctx context.Context, c *client.Client, server, tool string, call bareCall) error {
	name := server + "." + tool
	for i := -1; i < b.N; i++ {
		b.Progress(fmt.Sprintf("tools: %s, %d of %d", name, max(i, 0), b.N))
		res, err := RunTask(ctx, c, client.Submission{
			Task: client.Task{Code: fmt.Sprintf(loopOf, server, tool)},
		}, SmallestOutput)
		if err != nil {
			return err
		}
		var inside, outside []float64
		if err := json.Unmarshal(res.Result, &inside); err != nil {
			return fmt.Errorf("%s: decode the times of the calls: %w", name, err)
		}
		if len(inside) != loop || len(res.Tools.Calls) != loop {
			return fmt.Errorf("%s: measured %d of %d calls, want %d", name, len(inside), len(res.Tools.Calls), loop)
		}
		for n := range loop {
			began := time.Now()
			if _, err := call(ctx, tool, map[string]any{"a": n, "b": 1}); err != nil {
				return err
			}
			outside = append(outside, Since(began))
		}
		if i >= 0 {
			b.Add(name+" in a sandbox", "ms", inside...)
			for _, c := range res.Tools.Calls {
				b.Add(name+" in a sandbox · from the broker on", "ms", c.MS)
			}
			b.Add(name+" bare", "ms", outside...)
			b.Add("100 × "+name+" in a sandbox", "ms", sum(inside))
			b.Add("100 × "+name+" bare", "ms", sum(outside))
		}
	}
	return nil
}

// table compares the tokens of a table of 10,000 rows with the tokens of a program that reduces it to five rows.
func (b *Bench) table(ctx context.Context, c *client.Client, call bareCall) error {
	direct, err := call(ctx, "orders", map[string]any{"rows": rows})
	if err != nil {
		return err
	}
	inputs := json.RawMessage(fmt.Sprintf(`{"rows": %d}`, rows))
	res, err := RunTask(ctx, c, client.Submission{Task: client.Task{Code: fiveOf, Inputs: inputs}}, SmallestOutput)
	if err != nil {
		return err
	}
	var five []json.RawMessage
	if err := json.Unmarshal(res.Result, &five); err != nil {
		return fmt.Errorf("decode the rows: %w", err)
	}
	if len(five) != 5 {
		return fmt.Errorf("the program returned %d rows, want 5", len(five))
	}
	read := fiveOf + string(res.Result)
	b.Note("10,000 rows from the tool, 5 to the model: %d bytes, about %d tokens by a direct call; %d bytes, about "+
		"%d tokens by code (program %d, result %d); the task took %.0f ms",
		len(direct), codegen.Tokens(direct), len(read), codegen.Tokens(read), codegen.Tokens(fiveOf),
		codegen.Tokens(string(res.Result)), res.TimingMS.Total)
	b.AtLeast("T3", "tokens saved by code, 10,000 rows from the tool and 5 to the model",
		100*(1-float64(codegen.Tokens(read))/float64(codegen.Tokens(direct))), 98.7)
	return nil
}

// bareCall calls a tool and returns the text that a model would get.
type bareCall func(ctx context.Context, tool string, args map[string]any) (string, error)

// connectBare connects an MCP client without a fleet.
func connectBare(ctx context.Context, transport sdk.Transport) (call bareCall, stop func(), err error) {
	session, err := sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("connect the bare client: %w", err)
	}
	call = func(ctx context.Context, tool string, args map[string]any) (string, error) {
		res, err := session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
		if err != nil {
			return "", fmt.Errorf("call %s by the bare client: %w", tool, err)
		}
		if res.IsError || len(res.Content) == 0 {
			return "", fmt.Errorf("call %s by the bare client: the response is %+v", tool, res)
		}
		text, ok := res.Content[0].(*sdk.TextContent)
		if !ok {
			return "", fmt.Errorf("%s returned a %T, want text", tool, res.Content[0])
		}
		return text.Text, nil
	}
	return call, func() { _ = session.Close() }, nil // the server ends with the session
}

// slowServer starts an MCP server on a free port. It has a tool that takes 10 ms, and a tool with a large result.
func slowServer(ctx context.Context) (url string, stop func(), err error) {
	type pair struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	type order struct {
		ID       int     `json:"id"`
		Customer string  `json:"customer"`
		Amount   float64 `json:"amount"`
		Status   string  `json:"status"`
	}
	type table struct {
		Orders []order `json:"orders"`
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "slow", Version: "1"}, nil)
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true}
	sdk.AddTool(s, &sdk.Tool{Name: "wait", Annotations: reads},
		func(ctx context.Context, _ *sdk.CallToolRequest, in pair) (*sdk.CallToolResult, pair, error) {
			timer := time.NewTimer(slow)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			return nil, in, ctx.Err()
		})
	sdk.AddTool(s, &sdk.Tool{Name: "orders", Annotations: reads},
		func(_ context.Context, _ *sdk.CallToolRequest, in struct {
			Rows int `json:"rows"`
		},
		) (*sdk.CallToolResult, table, error) {
			var t table
			for n := range in.Rows {
				t.Orders = append(t.Orders, order{
					n, fmt.Sprintf("customer %d", n%977), float64(n*7919%100_000) / 100, "shipped",
				})
			}
			return nil, t, nil
		})
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s },
		&sdk.StreamableHTTPOptions{Stateless: true})
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // returns after Close
	}()
	return "http://" + l.Addr().String(), func() { _ = server.Close(); <-ended }, nil
}

// approveAll writes the Python modules of all configured MCP servers and approves their tools.
func approveAll(ctx context.Context, c *config.Config) error {
	dir, err := tooling.ServersDir(c)
	if err != nil {
		return err
	}
	m, err := tooling.Upstreams(c, mcp.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer m.Close()
	approvals, err := tools.LoadApprovals(dir)
	if err != nil {
		return err
	}
	for _, s := range c.MCPServers {
		defs, about, err := m.Definitions(ctx, s.Name, "", "")
		if err != nil {
			return err
		}
		p, err := pygen.Generate(pygen.Source{Server: s.Name, About: about, Tools: defs})
		if err != nil {
			return err
		}
		if _, err := pygen.Write(dir, p); err != nil {
			return err
		}
		for _, d := range defs {
			approvals.Approve(s.Name, d, "bench", time.Now())
		}
	}
	return approvals.Save(dir)
}

func sum(list []float64) (total float64) {
	for _, v := range list {
		total += v
	}
	return total
}
