package bridge

import (
	"context"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// This file has the tools about workspaces and their history.

type listFilesIn struct {
	Workspace  string `json:"workspace,omitempty" jsonschema:"default main"`
	Dir        string `json:"dir,omitempty" jsonschema:"only paths below this directory"`
	Generation string `json:"generation,omitempty" jsonschema:"a number or a pin; default the newest version"`
}

type fileOut struct {
	Path  string `json:"path"`
	Kind  string `json:"kind"`
	Bytes int64  `json:"bytes"`
}

type readFileIn struct {
	Workspace  string `json:"workspace,omitempty" jsonschema:"default main"`
	Path       string `json:"path"`
	Generation string `json:"generation,omitempty" jsonschema:"a number or a pin; default the newest version"`
	Offset     int64  `json:"offset,omitempty" jsonschema:"byte to begin at"`
}

type readFileOut struct {
	Path       string `json:"path"`
	Text       string `json:"text"`
	NextOffset int64  `json:"next_offset,omitempty" jsonschema:"where to continue; absent at the end"`
}

type listCommitsIn struct {
	Workspace string `json:"workspace,omitempty" jsonschema:"default main"`
	Limit     int    `json:"limit,omitempty" jsonschema:"default 20, at most 100"`
}

type commitOut struct {
	Generation int64     `json:"generation"`
	Time       time.Time `json:"time"`
	TaskID     string    `json:"task_id,omitempty"`
	Message    string    `json:"message,omitempty"`
	Changed    int       `json:"changed" jsonschema:"number of paths"`
}

type diffIn struct {
	Workspace string `json:"workspace,omitempty" jsonschema:"default main"`
	From      string `json:"from" jsonschema:"a generation or a pin"`
	To        string `json:"to,omitempty" jsonschema:"default the newest version"`
}

type restoreIn struct {
	Workspace  string `json:"workspace,omitempty" jsonschema:"default main"`
	Generation string `json:"generation" jsonschema:"a number or a pin"`
}

type restoreOut struct {
	Generation int64 `json:"generation" jsonschema:"of the new version"`
	NoChange   bool  `json:"no_change,omitempty" jsonschema:"the newest version was equal"`
}

func (ts *toolSet) addWorkspaces() {
	addTool(ts, tool{
		name: "list_workspaces", title: "List workspaces", scope: scopeRead, hints: readsOnly,
		out:  schemaOf[fittingList[client.WorkspaceInfo]](),
		text: "Your workspaces with their newest generation and size.",
	}, func(ctx context.Context, c *call, _ struct{}) (*result, error) {
		list, err := c.fleet.Workspaces(ctx)
		if err != nil {
			return nil, err
		}
		return listed(c, list), nil
	})
	addTool(ts, tool{
		name: "list_files", title: "List files", scope: scopeRead, hints: readsOnly,
		out: schemaOf[fittingList[fileOut]](), text: "The paths of a version of a workspace.",
	}, func(ctx context.Context, c *call, in listFilesIn) (*result, error) {
		files, _, err := c.workspaceOf(in.Workspace).Files(ctx, in.Generation, in.Dir)
		if err != nil {
			return nil, err
		}
		list := make([]fileOut, len(files))
		for i, f := range files {
			list[i] = fileOut{f.Path, f.Kind, f.Bytes}
		}
		return listed(c, list), nil
	})
	addTool(ts, tool{
		name: "read_file", title: "Read a file", scope: scopeRead, hints: readsOnly, out: schemaOf[readFileOut](),
		text: "The text of a file of a workspace, also of an earlier version.",
	}, func(ctx context.Context, c *call, in readFileIn) (*result, error) { return c.readFile(ctx, in) })
	addTool(ts, tool{
		name: "list_commits", title: "Show the history of a workspace", scope: scopeRead, hints: readsOnly,
		out: schemaOf[fittingList[commitOut]](), text: "The commits of a workspace, the latest first.",
	}, func(ctx context.Context, c *call, in listCommitsIn) (*result, error) {
		limit, err := listLimit(in.Limit)
		if err != nil {
			return nil, err
		}
		commits, err := c.workspaceOf(in.Workspace).Log(ctx, limit)
		if err != nil {
			return nil, err
		}
		list := make([]commitOut, len(commits))
		for i, k := range commits {
			list[i] = commitOut{k.Generation, k.Time, k.TaskID, c.beginning(ctx, k.Message), k.Total}
		}
		return listed(c, list), nil
	})
	addTool(ts, tool{
		name: "diff_workspace", title: "Compare versions of a workspace", scope: scopeRead, hints: readsOnly,
		out:  schemaOf[fittingList[client.PathChange]](),
		text: "The paths that differ between two versions of a workspace.",
	}, func(ctx context.Context, c *call, in diffIn) (*result, error) {
		changed, err := c.workspaceOf(in.Workspace).Diff(ctx, in.From, in.To)
		if err != nil {
			return nil, err
		}
		return listed(c, changed), nil
	})
	addTool(ts, tool{
		name: "restore_workspace", title: "Restore a workspace", scope: scopeSubmit, out: schemaOf[restoreOut](),
		hints: mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: new(true), OpenWorldHint: new(false)},
		text:  "Commit an earlier version of a workspace again, as the newest one. Later versions stay in the history.",
	}, func(ctx context.Context, c *call, in restoreIn) (*result, error) {
		k, err := c.workspaceOf(in.Workspace).Restore(ctx, in.Generation, "restored over MCP")
		if err != nil {
			return nil, err
		}
		return &result{out: restoreOut{k.Generation, k.NoChange}}, nil
	})
}

// maxSearched limits the size of a file that is searched for private values.
const maxSearched = 4 << 20

// fileBytes returns at most Options.MaxOutput bytes of a file. If private values are hidden, the file is searched from
// its beginning, because a part of a value would not be recognized, and the offset counts the bytes of the text with
// privacy tokens in place of the values.
func (c *call) fileBytes(ctx context.Context, in readFileIn) ([]byte, error) {
	hide, offset, limit := c.hider(ctx), in.Offset, c.b.o.MaxOutput
	if hide != nil {
		offset, limit = 0, maxSearched+1
	}
	content, err := c.workspaceOf(in.Workspace).Open(ctx, in.Generation, in.Path, offset)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	data, err := io.ReadAll(io.LimitReader(content, int64(limit)))
	if err != nil || hide == nil {
		return data, err
	}
	if len(data) > maxSearched {
		return nil, badArgument("%s is larger than %d bytes, too large to search it for personal data: let a program "+
			"read it and return what you need", in.Path, maxSearched)
	}
	if !utf8.Valid(data) {
		return nil, notText(in.Path)
	}
	hidden := hide(ctx, string(data))
	rest := hidden[min(in.Offset, int64(len(hidden))):]
	return []byte(rest[:min(len(rest), c.b.o.MaxOutput)]), nil
}

func notText(path string) error {
	return badArgument("%s is not UTF-8 text: a program can read it, or a task can return it as an artifact", path)
}

// readFile returns as much text of a file as fits.
func (c *call) readFile(ctx context.Context, in readFileIn) (*result, error) {
	if in.Offset < 0 {
		return nil, badArgument("offset is negative")
	}
	data, err := c.fileBytes(ctx, in)
	if err != nil {
		return nil, err
	}
	skipped := 0 // the rest of a character that begins before the offset
	for in.Offset > 0 && skipped < min(len(data), utf8.UTFMax-1) && !utf8.RuneStart(data[skipped]) {
		skipped++
	}
	whole := data[skipped:]
	for range utf8.UTFMax - 1 { // the last character may be incomplete
		if r, n := utf8.DecodeLastRune(whole); r != utf8.RuneError || n != 1 {
			break
		}
		whole = whole[:len(whole)-1]
	}
	if !utf8.Valid(whole) || slices.Contains(whole, 0) {
		return nil, notText(in.Path)
	}
	out := readFileOut{Path: in.Path, Text: textPrefix(string(whole), c.b.o.MaxOutput-len(in.Path)*6-100)}
	if n := skipped + len(out.Text); n < len(data) || len(data) == c.b.o.MaxOutput {
		if out.Text == "" {
			return nil, badArgument("%s is not UTF-8 text at byte %d", in.Path, in.Offset)
		}
		out.NextOffset = in.Offset + int64(n)
	}
	return &result{out: out}, nil
}
