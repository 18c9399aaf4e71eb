package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// wikiServer runs an MCP server on standard input and output. Its argument is a file that defines its tools. A call
// returns the tool's name and the arguments.
func wikiServer() {
	if err := serveWiki(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveWiki(ctx context.Context, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var wiki struct {
		Title        string      `json:"title"`
		Instructions string      `json:"instructions"`
		Tools        []*mcp.Tool `json:"tools"`
	}
	if err := json.Unmarshal(data, &wiki); err != nil {
		return err
	}
	s := mcp.NewServer(&mcp.Implementation{
		Name: "wiki", Title: wiki.Title, Version: "1",
	}, &mcp.ServerOptions{Instructions: wiki.Instructions})
	for _, t := range wiki.Tools {
		s.AddTool(t, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{
				Content: []mcp.Content{&mcp.TextContent{Text: t.Name + " " + string(r.Params.Arguments)}},
			}, nil
		})
	}
	return s.Run(ctx, &mcp.StdioTransport{})
}
