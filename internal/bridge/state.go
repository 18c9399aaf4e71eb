package bridge

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

type getStateIn struct {
	StateFile string `json:"state_file,omitempty" jsonschema:"NAME.json or NAME.yaml, at the top of the workspace or below state/; default state.json"`
	Workspace string `json:"workspace,omitempty" jsonschema:"default main"`
	Path      string `json:"path,omitempty" jsonschema:"return only this part of the document: a JSON Pointer such as /orders/7"`
	Offset    int    `json:"offset,omitempty" jsonschema:"member, item or byte to begin at, if the part is too long for one result"`
}

type getStateOut struct {
	Exists  bool            `json:"exists"`
	Data    json.RawMessage `json:"data" jsonschema:"its content; {} if it does not exist"`
	Version string          `json:"version" jsonschema:"pass it to save_state as if_version"`
	File    string          `json:"file" jsonschema:"the path for programs"`

	Truncated  bool          `json:"truncated,omitempty" jsonschema:"data is incomplete: do not save it"`
	NextOffset int           `json:"next_offset,omitempty" jsonschema:"pass it as offset, with the same path, for more"`
	Omitted    []omittedPart `json:"omitted,omitempty" jsonschema:"parts that are too long for this result: pass their path"`
	Hint       string        `json:"hint,omitempty" jsonschema:"what to do next"`
}

type saveStateIn struct {
	StateData json.RawMessage `json:"state_data" jsonschema:"an object; it replaces the document"`
	StateFile string          `json:"state_file,omitempty" jsonschema:"as for get_state; default state.json"`
	Workspace string          `json:"workspace,omitempty" jsonschema:"default main"`
	IfVersion string          `json:"if_version,omitempty" jsonschema:"replace only this version, from get_state; \"none\" only creates; without it, any version is replaced"`
}

type saveStateOut struct {
	Success bool   `json:"success"`
	File    string `json:"file"`
	Version string `json:"version"`
}

func (ts *toolSet) addState() {
	addTool(ts, tool{
		name: "get_state", title: "Get state", scope: scopeRead, out: schemaOf[getStateOut](),
		hints: readsOnly,
		text: "Read a state document of the workspace, without a program. Programs find it at /workspace/state.json. " +
			"If it does not exist, the result is {exists: false, data: {}}. With path and offset, it returns a part " +
			"of a long document.",
	}, func(ctx context.Context, c *call, in getStateIn) (*result, error) {
		if in.Offset < 0 {
			return nil, badArgument("offset is negative")
		}
		st, err := c.fleet.GetState(ctx, in.Workspace, in.StateFile)
		if err != nil {
			return nil, err
		}
		part, err := statePart(json.RawMessage(c.hidden(ctx, string(st.Data))), in.Path)
		if err != nil {
			return nil, err
		}
		out := getStateOut{Exists: st.Exists, Version: st.ETag, File: boxPath(st.File)}
		err = out.fit(part, in, c.b.o.MaxOutput)
		return &result{out: out}, err
	})
	addTool(ts, tool{
		name: "save_state", title: "Save state", scope: scopeSubmit, out: schemaOf[saveStateOut](),
		hints: mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: new(true), OpenWorldHint: new(false)},
		text: "Write a state document of the workspace, without a program. With if_version, it is an error if " +
			"the document has changed since that version.",
	}, func(ctx context.Context, c *call, in saveStateIn) (*result, error) {
		st, err := c.fleet.SaveState(ctx,
			client.State{Workspace: in.Workspace, File: in.StateFile, Data: in.StateData, ETag: in.IfVersion})
		if err != nil {
			return nil, err
		}
		return &result{out: saveStateOut{Success: true, File: boxPath(st.File), Version: st.ETag}}, nil
	})
}

// boxPath returns the path of a state document in the box.
func boxPath(file string) string {
	return "/workspace/" + cmp.Or(file, "state.json")
}
