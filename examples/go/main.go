// The examples in Go. Each one is a function of a few lines that checks its values:
//
//	go run ./examples/go              # list the examples
//	go run ./examples/go 05_state_persistence
//
// They use the fleet that the client finds. With MCP_MODE=true they are clients of its MCP server.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"strings"

	"github.com/codefleet/codefleet/client"
)

// runner runs tasks: an agent, or a client of the MCP server.
type runner interface {
	ExecuteTask(ctx context.Context, description string) (client.Result, string, error)
	ExecuteCode(ctx context.Context, code string, inputs any) (client.Result, string, error)
	State(ctx context.Context, file string) (map[string]any, error)
	SaveState(ctx context.Context, file string, data map[string]any) error
}

type example struct {
	name string
	run  func(ctx context.Context, r runner) error
}

var examples = []example{
	{"00_simple_api", simpleAPI},
	{"01_basic_tool_call", basicToolCall},
	{"02_multi_tool_chain", multiToolChain},
	{"03_data_filtering", dataFiltering},
	{"04_control_flow", controlFlow},
	{"05_state_persistence", statePersistence},
	{"06_skills", skills},
	{"07_filesystem_operations", filesystemOperations},
	{"08_cross_session_persistence", crossSession},
	{"09_configuration", configuration},
	{"10_mcp_server", mcpServer},
	{"11_mcp_server_client", mcpServerClient},
	{"12_mcp_client_example", mcpClientExample},
	{"13_programmatic_tools", programmaticTools},
	{"14_mcp_statefulness", statefulness},
}

func main() {
	if len(os.Args) < 2 {
		for _, e := range examples {
			fmt.Println(e.name)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string) error {
	for _, e := range examples {
		if !strings.HasPrefix(e.name, name) {
			continue
		}
		workspace := "go-example-" + strings.ReplaceAll(e.name, "_", "-")
		if os.Getenv("MCP_MODE") == "true" {
			r, err := dialMCP(ctx, workspace)
			if err != nil {
				return err
			}
			return e.run(ctx, r)
		}
		r, err := newAgent(ctx, workspace)
		if err != nil {
			return err
		}
		defer closing(r)
		return e.run(ctx, r)
	}
	return fmt.Errorf("no example %q: run without an argument to list them", name)
}

// agent makes a client.Agent a runner.
type agent struct {
	*client.Agent
	workspace string
}

func newAgent(ctx context.Context, workspace string) (agent, error) {
	a, err := client.NewAgent(ctx, client.AgentOptions{Workspace: workspace})
	return agent{a, workspace}, err
}

func (a agent) ExecuteCode(ctx context.Context, code string, inputs any) (client.Result, string, error) {
	data, err := json.Marshal(inputs)
	if err != nil {
		return client.Result{}, "", err
	}
	return a.Execute(ctx, client.Task{Code: code, Inputs: data})
}

func (a agent) State(ctx context.Context, file string) (data map[string]any, err error) {
	s, err := a.Client().GetState(ctx, a.workspace, file)
	if err != nil {
		return nil, err
	}
	return data, json.Unmarshal(s.Data, &data)
}

func (a agent) SaveState(ctx context.Context, file string, data map[string]any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	_, err = a.Client().SaveState(ctx, client.State{Workspace: a.workspace, File: file, Data: text})
	return err
}

// closing closes an agent whose tasks have ended. An error has no consequence then.
func closing(a io.Closer) { _ = a.Close() }

// want compares a value, as JSON, with what the example expects. It prints the value, or returns an error.
func want(what string, got, expected any) error {
	g, err1 := json.Marshal(got)
	e, err2 := json.Marshal(expected)
	if err := cmp.Or(err1, err2); err != nil {
		return err
	}
	var a, b any
	if json.Unmarshal(g, &a) != nil || json.Unmarshal(e, &b) != nil || !reflect.DeepEqual(a, b) {
		return fmt.Errorf("%s = %s, want %s", what, g, e)
	}
	fmt.Printf("%s = %s\n", what, g)
	return nil
}
