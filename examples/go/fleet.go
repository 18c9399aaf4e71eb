package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/client"
)

// configuration gives an agent limits and an allow-list of tools; a program that calls another tool fails. A second
// agent starts a fleet of its own, with settings.
func configuration(ctx context.Context, _ runner) error {
	a, err := client.NewAgent(ctx, client.AgentOptions{
		Workspace: "go-example-configuration", Session: "monday", Priority: "low", Tools: []string{"calculator/*"},
		Limits: client.Limits{TimeoutS: 20, MemoryMB: 128}, Labels: map[string]string{"example": "09"},
	})
	if err != nil {
		return err
	}
	defer closing(a)
	v, err := valueOf(a.Execute(ctx, client.Task{Code: "from servers.calculator import add\nadd(2, 3)"}))
	if err != nil {
		return err
	}
	if err := want("sum", v, 5); err != nil {
		return err
	}
	_, _, err = a.Execute(ctx, client.Task{Code: "from servers.weather import get_weather\nget_weather('Oslo')"})
	if err := want("other tools are refused", err != nil, true); err != nil {
		return err
	}
	own, err := client.NewAgent(ctx, client.AgentOptions{Settings: map[string]string{
		"execution.state.state_file": "my_state.json", "guardrails.max_execution_time": "60s",
	}})
	if err != nil {
		return err
	}
	defer closing(own)
	if _, _, err := own.Execute(ctx, client.Task{Code: "state['step'] = 1"}); err != nil {
		return err
	}
	v, err = valueOf(own.Execute(ctx, client.Task{Code: "import json\njson.load(open('/workspace/my_state.json'))"}))
	if err != nil {
		return err
	}
	return want("state", v, map[string]any{"step": 1})
}

// mcpServer checks which tools the fleet's MCP server lists.
func mcpServer(ctx context.Context, _ runner) error {
	c, err := dialMCP(ctx, "go-example-mcp-server")
	if err != nil {
		return err
	}
	list, err := c.request(ctx, "tools/list", map[string]any{})
	if err != nil {
		return err
	}
	var found struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(list, &found); err != nil {
		return err
	}
	var names []string
	for _, t := range found.Tools {
		names = append(names, t.Name)
	}
	for _, name := range []string{
		"execute_task", "list_available_tools", "get_state", "save_state", "list_servers", "get_server_tools",
		"search_tools",
	} {
		if err := want(name, slices.Contains(names, name), true); err != nil {
			return err
		}
	}
	return nil
}

// mcpServerClient calls tools of the MCP server.
func mcpServerClient(ctx context.Context, _ runner) error {
	c, err := dialMCP(ctx, "go-example-mcp-client")
	if err != nil {
		return err
	}
	var servers map[string][]string
	if err := c.call(ctx, "list_available_tools", map[string]any{}, &servers); err != nil {
		return err
	}
	if err := want("weather", servers["weather"], []string{"get_forecast", "get_weather"}); err != nil {
		return err
	}
	v, err := valueOf(c.ExecuteTask(ctx, "Calculate 2 + 2"))
	if err != nil {
		return err
	}
	return want("result", v, 4)
}

// mcpClientExample runs one example with an agent, and as a client of the MCP server.
func mcpClientExample(ctx context.Context, _ runner) error {
	a, err := newAgent(ctx, "go-example-both")
	if err != nil {
		return err
	}
	defer closing(a)
	c, err := dialMCP(ctx, "go-example-both")
	if err != nil {
		return err
	}
	for _, r := range []runner{a, c} {
		if err := simpleAPI(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

type person struct {
	Name string `json:"name"`
}

// programmaticTools serves a Go function as a tool. Registration needs NATS; in Python it works over HTTP.
func programmaticTools(ctx context.Context, r runner) error {
	where, err := client.LocateNATS("", "")
	if err != nil {
		return err
	}
	c, err := client.New(ctx, where)
	if err != nil {
		return err
	}
	defer c.Close()
	server := "go_custom"
	tools, err := client.RegisterTool(ctx, c, server, client.ToolInfo{Name: "greet", Description: "Greet a person."},
		func(_ context.Context, p person) (string, error) { return "Hello, " + p.Name + "!", nil })
	if err != nil {
		return err
	}
	defer tools.Close()
	code := "from servers." + server + " import greet\ngreet('Ada')"
	v, err := valueOf(r.ExecuteCode(ctx, code, nil))
	for i := 0; i < 20 && err != nil && strings.Contains(err.Error(), server); i++ {
		time.Sleep(100 * time.Millisecond) // until the worker has learned of the tool
		v, err = valueOf(r.ExecuteCode(ctx, code, nil))
	}
	if err != nil {
		return err
	}
	return want("greeting", v, "Hello, Ada!")
}
