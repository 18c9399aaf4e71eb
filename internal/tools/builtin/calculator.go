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
	addTool(s, "add", "Add two numbers together.", pairSchema,
		func(in pair) (float64, error) { return in.A + in.B, nil })
	addTool(s, "multiply", "Multiply two numbers.", pairSchema,
		func(in pair) (float64, error) { return in.A * in.B, nil })
	addTool(s, "calculate", "Evaluate a mathematical expression.", expressionSchema,
		func(in expression) (float64, error) { return arith.Evaluate(in.Expression) })
	return s
}

// addTool adds a tool that returns a finite number.
func addTool[In any](s *mcp.Server, name, description, schema string, compute func(In) (float64, error)) {
	mcp.AddTool(s, &mcp.Tool{
		Name: name, Description: description,
		InputSchema: json.RawMessage(schema), OutputSchema: numberSchema, Annotations: readOnly(false),
	}, func(_ context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, number, error) {
		v, err := compute(in)
		if err == nil && (math.IsInf(v, 0) || math.IsNaN(v)) {
			err = errors.New("the result is not a finite number")
		}
		return nil, number{v}, err
	})
}
