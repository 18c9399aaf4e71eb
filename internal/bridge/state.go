package bridge

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

type getStateIn struct {
	StateFile string `json:"state_file,omitempty" jsonschema:"NAME.json or NAME.yaml, at the top of the workspace or below state/; default state.json"`
	Workspace string `json:"workspace,omitempty" jsonschema:"default main"`
}

type getStateOut struct {
	Exists  bool            `json:"exists"`
	Data    json.RawMessage `json:"data" jsonschema:"what the file holds; {} where there is none"`
	Version string          `json:"version" jsonschema:"give it to save_state as if_version"`
	File    string          `json:"file" jsonschema:"where programs find it"`
}

type saveStateIn struct {
	StateData json.RawMessage `json:"state_data" jsonschema:"an object; it replaces what is there"`
	StateFile string          `json:"state_file,omitempty" jsonschema:"as for get_state; default state.json"`
	Workspace string          `json:"workspace,omitempty" jsonschema:"default main"`
	IfVersion string          `json:"if_version,omitempty" jsonschema:"save only over this version of get_state; none: only if there is no file yet"`
}

type saveStateOut struct {
	Success bool   `json:"success"`
	File    string `json:"file"`
	Version string `json:"version"`
}

func (p *principal) addState(s *mcp.Server, profile string) {
	addTool(p, s, profile, tool{
		name: "get_state", title: "Get state", scope: scopeRead, out: schemaOf[getStateOut](),
		hints: mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)},
		text:  "Read a state file of the workspace, without a program. Programs see it as /workspace/state.json. One that is not there is {exists: false, data: {}}.",
	}, func(ctx context.Context, c *call, in getStateIn) (*answer, error) {
		st, err := c.fleet.GetState(ctx, in.Workspace, in.StateFile)
		if err != nil {
			return nil, err
		}
		return &answer{out: getStateOut{Exists: st.Exists, Data: st.Data, Version: st.ETag, File: inBox(st.File)}}, nil
	})
	addTool(p, s, profile, tool{
		name: "save_state", title: "Save state", scope: scopeSubmit, out: schemaOf[saveStateOut](),
		hints: mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: new(true), OpenWorldHint: new(false)},
		text:  "Write a state file of the workspace, without a program. With if_version, somebody else's change in between is an error and not lost.",
	}, func(ctx context.Context, c *call, in saveStateIn) (*answer, error) {
		st, err := c.fleet.SaveState(ctx, client.State{Workspace: in.Workspace, File: in.StateFile, Data: in.StateData, ETag: in.IfVersion})
		if err != nil {
			return nil, err
		}
		return &answer{out: saveStateOut{Success: true, File: inBox(st.File), Version: st.ETag}}, nil
	})
}

// inBox is where a program finds a state file.
func inBox(file string) string {
	if file == "" {
		file = "state.json"
	}
	return "/workspace/" + file
}
