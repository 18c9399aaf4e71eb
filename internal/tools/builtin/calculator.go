package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"math"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/arith"
)

type pair struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

type expression struct {
	Expression string `json:"expression"`
}

const pairSchema = `{"type":"object","properties":{
"a":{"type":"number","description":"The first number"},
"b":{"type":"number","description":"The second number"}},"required":["a","b"],"additionalProperties":false}`

const expressionSchema = `{"type":"object","properties":{
"expression":{"type":"string","maxLength":1000,` +
	`"description":"Arithmetic such as 2*3+4: numbers, + - * / // % ** (or ^), ` +
	`parentheses, pi, e, and abs, ceil, cos, exp, floor, log, log10, ` +
	`max, min, round, sin, sqrt, tan"}},
"required":["expression"],"additionalProperties":false}`

func calculator() *mcp.Server {
	s := newServer("calculator")
	mcp.AddTool(s, &mcp.Tool{
		Name: "add", Description: "Add two numbers together.",
		InputSchema: json.RawMessage(pairSchema), OutputSchema: numberSchema, Annotations: readOnly(false),
	}, func(_ context.Context, _ *mcp.CallToolRequest, in pair) (*mcp.CallToolResult, number, error) {
		return finite(in.A + in.B)
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "multiply", Description: "Multiply two numbers.",
		InputSchema: json.RawMessage(pairSchema), OutputSchema: numberSchema, Annotations: readOnly(false),
	}, func(_ context.Context, _ *mcp.CallToolRequest, in pair) (*mcp.CallToolResult, number, error) {
		return finite(in.A * in.B)
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "calculate", Description: "Evaluate a mathematical expression.",
		InputSchema: json.RawMessage(expressionSchema), OutputSchema: numberSchema, Annotations: readOnly(false),
	}, func(_ context.Context, _ *mcp.CallToolRequest, in expression) (*mcp.CallToolResult, number, error) {
		v, err := arith.Evaluate(in.Expression)
		if err != nil {
			return nil, number{}, err
		}
		return finite(v)
	})
	return s
}

func finite(v float64) (*mcp.CallToolResult, number, error) {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil, number{}, errors.New("the result is not a finite number")
	}
	return nil, number{v}, nil
}
