// Package selectioneval measures the selection over data sets of tools and questions.
//
// A data set is a directory with catalogue.jsonl {server, tool, description, params, …} and queries.jsonl {id, query,
// relevant, groups?, grades?}. Run measures every data set below a directory. Package selection knows none of them.
package selectioneval

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/selection"
)

// Query is one question of a set with the tools that answer it.
type Query struct {
	ID       string             `json:"id"`
	Text     string             `json:"query"`
	Task     string             `json:"task"`
	Relevant []string           `json:"relevant"`
	Groups   [][]string         `json:"groups"` // of interchangeable tools; default: each relevant tool alone
	Grades   map[string]float64 `json:"grades"`
}

// Set is one data set.
type Set struct {
	Name    string
	Tools   []selection.Tool
	Queries []Query
}

type row struct {
	Server, Tool, Description string
	Category                  string
	ServerTitle               string `json:"server_title"`
	ServerDescription         string `json:"server_description"`
	Params                    []struct {
		Name, Type, Description string
		Required                bool
		Enum                    []any
	}
}

func (r row) tool() selection.Tool {
	t := selection.Tool{
		Server: r.Server, Name: r.Tool, Description: r.Description, ServerTitle: r.ServerTitle,
		ServerDescription: r.ServerDescription,
	}
	for _, p := range r.Params {
		q := selection.Param{Name: p.Name, Type: p.Type, Description: p.Description, Required: p.Required}
		for _, e := range p.Enum {
			q.Enum = append(q.Enum, fmt.Sprint(e))
		}
		t.Params = append(t.Params, q)
	}
	return t
}

// Load reads one data set.
func Load(dir string) (Set, error) {
	set := Set{Name: filepath.Base(dir)}
	err := lines(filepath.Join(dir, "catalogue.jsonl"), func(r row) { set.Tools = append(set.Tools, r.tool()) })
	if err != nil {
		return Set{}, err
	}
	err = lines(filepath.Join(dir, "queries.jsonl"), func(q Query) { set.Queries = append(set.Queries, q) })
	return set, err
}

func lines[T any](path string, each func(T)) error {
	file, err := os.Open(path) //nolint:gosec // the caller names the directory to measure
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
		each(v)
	}
	return scanner.Err()
}
