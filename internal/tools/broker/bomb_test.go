package broker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
)

// Schemas are untrusted. If validation takes practically unlimited time, it costs the worker little and is
// left to the server.
func TestSchemaThatNeverEnds(t *testing.T) {
	var defs []string
	for i := range 60 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	schema := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{` +
		strings.Join(defs, ",") + `,"d60":{"type":"string"}}}`
	nested := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d"}},"$defs":{"d":{"allOf":[` +
		`{"items":{"$ref":"#/$defs/d"}},{"items":{"$ref":"#/$defs/d"}}]}}}`
	cycle := `{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`
	for schema, args := range map[string]string{
		schema: `{"a":"x"}`, cycle: `{"a":1}`, nested: `{"a":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`,
	} {
		w := newWorld(t)
		d := tools.Definition{
			Name: "bomb", InputSchema: json.RawMessage(schema), Annotations: tools.Annotations{ReadOnly: true},
		}
		w.cfg.Catalogue = tools.NewListing([]tools.Tool{{
			Server: "s", Name: "bomb", State: tools.Registered, Module: "servers.s.bomb", Function: "bomb",
			Signature:   "bomb(...)",
			InputSchema: d.InputSchema, Annotations: d.Annotations, Hash: d.Hash(),
		}})
		w.reply["bomb"] = func(tools.Request) (tools.Result, error) {
			return tools.Result{Structured: object("1")}, nil
		}
		if _, err := w.open().Call(t.Context(),
			broker.Call{Server: "s", Tool: "bomb", Args: json.RawMessage(args)}); err != nil {
			t.Errorf("Call() = %v, want nil", err)
		}
	}
}
