package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/process"
)

// exampleClient submits the tasks of examples: over NATS, or over MCP. It serves the tool custom/square.
type exampleClient struct {
	*client.Client
	mcp *sdk.ClientSession
}

type squareIn struct {
	Number float64 `json:"number"`
}

// startExamples starts a fleet, and connects to it in each way that examples use.
func (b *Bench) startExamples(ctx context.Context, change func(*config.Config)) (c *exampleClient, stop func() error,
	err error,
) {
	f, end, err := b.StartFleet(ctx, change, process.RunWorker)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end()) // not stop, which a return with an error sets to nil
		}
	}()
	add := func(closeIt func() error) {
		last := end
		end = func() error { return errors.Join(closeIt(), last()) }
	}
	c = &exampleClient{}
	if c.Client, err = tenantClient(ctx, f, f.File.Tenant); err != nil {
		return nil, nil, err
	}
	add(c.Close)
	tool, err := client.RegisterTool(ctx, c.Client, "custom",
		client.ToolInfo{Name: "square", Description: "Calculate the square of a number."},
		func(_ context.Context, in squareIn) (float64, error) { return in.Number * in.Number, nil })
	if err != nil {
		return nil, nil, err
	}
	add(func() error { tool.Close(); return nil })
	c.mcp, err = sdk.NewClient(&sdk.Implementation{Name: "codefleet-bench"}, nil).Connect(ctx,
		&sdk.StreamableClientTransport{
			Endpoint: f.File.URL + "/mcp", HTTPClient: &http.Client{Transport: bearer(f.File.Token)},
		}, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("connect over MCP: %w", err)
	}
	add(c.mcp.Close)
	return c, end, nil
}

// bearer adds a token to requests.
type bearer string

func (t bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(t))
	return http.DefaultTransport.RoundTrip(r)
}

// run runs a task over NATS.
func (c *exampleClient) run(ctx context.Context, s client.Submission) (client.Result, error) {
	return requireSuccess(ctx, c.Client, s)
}

// runOverMCP runs a task as a client of the MCP server.
func (c *exampleClient) runOverMCP(ctx context.Context, s client.Submission) (client.Result, error) {
	r, err := c.mcp.CallTool(ctx, &sdk.CallToolParams{
		Name: "execute_task", Arguments: map[string]any{
			"task_description": s.Description, "workspace": s.Workspace,
		},
	})
	if err != nil {
		return client.Result{}, fmt.Errorf("call execute_task: %w", err)
	}
	var out struct {
		TaskID  string `json:"task_id"`
		Success bool   `json:"success"`
	}
	data, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return client.Result{}, fmt.Errorf("decode the result of execute_task: %w", err)
	}
	if !out.Success {
		return client.Result{}, fmt.Errorf("execute_task over MCP did not succeed: %.300s", data)
	}
	return c.Result(ctx, out.TaskID)
}
