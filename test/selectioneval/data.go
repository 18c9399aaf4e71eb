// Package selectioneval measures the selection with data sets of tools and questions.
//
// A data set is a directory with the files catalogue.jsonl {server, tool, description, params, …} and queries.jsonl
// {id, query, relevant, groups?, grades?}. Run measures all data sets below a directory.
package selectioneval

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/selection"
)

// Query is one question of a set, with the tools that it needs.
type Query struct {
	ID       string             `json:"id"`
	Text     string             `json:"query"`
	Task     string             `json:"task"`     // the task to which the question belongs; may be empty
	Relevant []string           `json:"relevant"` // ids of tools
	Groups   [][]string         `json:"groups"`   // interchangeable tools; by default each relevant tool is a group
	Grades   map[string]float64 `json:"grades"`   // how relevant a tool is; may be empty
}

// Set is one data set.
type Set struct {
	Name    string
	Tools   []selection.Tool
	Queries []Query
}

// catalogueLine is a line of catalogue.jsonl.
type catalogueLine struct {
	Server, Tool, Description string
	ServerTitle               string `json:"server_title"`
	ServerDescription         string `json:"server_description"`
	Params                    []struct {
		Name, Type, Description string
		Required                bool
		Enum                    []any
	}
}

func (l catalogueLine) tool() selection.Tool {
	t := selection.Tool{
		Server: l.Server, Name: l.Tool, Description: l.Description, ServerTitle: l.ServerTitle,
		ServerDescription: l.ServerDescription,
	}
	for _, p := range l.Params {
		param := selection.Param{Name: p.Name, Type: p.Type, Description: p.Description, Required: p.Required}
		for _, e := range p.Enum {
			param.Enum = append(param.Enum, fmt.Sprint(e))
		}
		t.Params = append(t.Params, param)
	}
	return t
}

// Load reads one data set.
func Load(dir string) (Set, error) {
	set := Set{Name: filepath.Base(dir)}
	err := readLines(filepath.Join(dir, "catalogue.jsonl"),
		func(l catalogueLine) { set.Tools = append(set.Tools, l.tool()) })
	if err != nil {
		return Set{}, err
	}
	err = readLines(filepath.Join(dir, "queries.jsonl"), func(q Query) { set.Queries = append(set.Queries, q) })
	return set, err
}

// readLines decodes each line of a file.
func readLines[T any](path string, add func(T)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 16<<20)
	for n := 1; scanner.Scan(); n++ {
		var v T
		if err := json.Unmarshal(scanner.Bytes(), &v); err != nil {
			return fmt.Errorf("%s line %d: %w", path, n, err)
		}
		add(v)
	}
	return scanner.Err()
}
