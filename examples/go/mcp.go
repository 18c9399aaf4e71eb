package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/codefleet/codefleet/client"
)

// mcpClient is a minimal MCP client. It sends requests over HTTP to the fleet's /mcp.
type mcpClient struct {
	url, token, session, workspace string
	last                           int // id of the latest request
}

func dialMCP(ctx context.Context, workspace string) (*mcpClient, error) {
	found, err := client.Locate("")
	if err != nil {
		return nil, err
	}
	c := &mcpClient{url: found.URL, token: found.Token, workspace: workspace}
	if _, err = c.request(ctx, "initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "examples", "version": "1"},
	}); err != nil {
		return nil, err
	}
	resp, err := c.post(ctx, map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	if err != nil {
		return nil, err
	}
	return c, resp.Body.Close()
}

// request sends a request and returns its result.
func (c *mcpClient) request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	c.last++
	resp, err := c.post(ctx, map[string]any{"jsonrpc": "2.0", "id": c.last, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readResult(resp.Body, c.last)
}

// post sends a message. The caller closes the body of the response.
func (c *mcpClient) post(ctx context.Context, message any) (*http.Response, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/mcp", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, fmt.Errorf("the fleet responded with %s: %s", resp.Status, text)
	}
	c.session = cmp.Or(resp.Header.Get("Mcp-Session-Id"), c.session)
	return resp, nil
}

// readResult returns the result of the response with the id. The lines of r are JSON, or data of server-sent events.
func readResult(r io.Reader, id int) (json.RawMessage, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		text := strings.TrimPrefix(lines.Text(), "data: ")
		if json.Unmarshal([]byte(text), &m) != nil || m.ID != id {
			continue
		}
		if m.Error != nil {
			return nil, errors.New(m.Error.Message)
		}
		return m.Result, nil
	}
	return nil, cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
}

// call calls a tool and decodes its structured content.
func (c *mcpClient) call(ctx context.Context, tool string, args map[string]any, out any) error {
	result, err := c.request(ctx, "tools/call", map[string]any{"name": tool, "arguments": args})
	if err != nil {
		return err
	}
	var r struct {
		Structured json.RawMessage `json:"structuredContent"`
	}
	if err := json.Unmarshal(result, &r); err != nil || len(r.Structured) == 0 {
		return fmt.Errorf("call %s: %s", tool, result)
	}
	return json.Unmarshal(r.Structured, out)
}

func (c *mcpClient) ExecuteTask(ctx context.Context, description string) (client.Result, string, error) {
	return c.execute(ctx, map[string]any{"task_description": description})
}

func (c *mcpClient) ExecuteCode(ctx context.Context, code string, inputs any) (client.Result, string, error) {
	return c.execute(ctx, map[string]any{"code": code, "inputs": inputs})
}

func (c *mcpClient) execute(ctx context.Context, args map[string]any) (client.Result, string, error) {
	args["workspace"], args["wait_ms"] = c.workspace, 45000
	var r struct {
		TaskID string          `json:"task_id"`
		Status client.Status   `json:"status"`
		Result json.RawMessage `json:"result"`
		Output string          `json:"output"`
		Error  *string         `json:"error"`
	}
	if err := c.call(ctx, "execute_task", args, &r); err != nil {
		return client.Result{}, "", err
	}
	for !r.Status.Terminal() { // the task has taken longer than wait_ms
		err := c.call(ctx, "get_task", map[string]any{"task_id": r.TaskID, "wait_ms": 45000}, &r)
		if err != nil {
			return client.Result{}, "", err
		}
	}
	if r.Error != nil {
		return client.Result{}, r.Output, errors.New(*r.Error)
	}
	return client.Result{Result: r.Result, Output: r.Output}, r.Output, nil
}

func (c *mcpClient) State(ctx context.Context, file string) (map[string]any, error) {
	var s struct {
		Data map[string]any `json:"data"`
	}
	err := c.call(ctx, "get_state", map[string]any{"state_file": file, "workspace": c.workspace}, &s)
	return s.Data, err
}

func (c *mcpClient) SaveState(ctx context.Context, file string, data map[string]any) error {
	return c.call(ctx, "save_state", map[string]any{
		"state_file": file, "state_data": data, "workspace": c.workspace,
	}, &struct{}{})
}
