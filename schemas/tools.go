package schemas

import "encoding/json"

// Tool is a tool of a tenant's catalogue. The level of detail determines which fields are set: name sets the first
// block, description also the second, and full all fields.
type Tool struct {
	ID     string `json:"id"` // server/name, as in allow-lists and results
	Server string `json:"server"`
	Name   string `json:"name"`
	State  string `json:"state"`            // local | registered | approved; programs may not call pending | changed
	Import string `json:"import,omitempty"` // from servers.calculator import add

	Signature   string `json:"signature,omitempty"`   // add(a: float, b: float) -> float
	Description string `json:"description,omitempty"` // one line, except at the level full

	Module       string           `json:"module,omitempty"`   // servers.calculator.add
	Function     string           `json:"function,omitempty"` // add
	Path         string           `json:"path,omitempty"`     // below servers/
	Types        string           `json:"types,omitempty"`    // the classes that the signature names, in Python
	Title        string           `json:"title,omitempty"`
	InputSchema  json.RawMessage  `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage  `json:"output_schema,omitempty"`
	Annotations  *ToolAnnotations `json:"annotations,omitempty"`
	Exposed      bool             `json:"exposed,omitempty"` // whether the MCP bridge offers the registered tool directly
	Hash         string           `json:"hash,omitempty"`    // hash of the definition; empty for a hand-written module
}

// ToolAnnotations are a tool's claims about its effects, named as in MCP.
type ToolAnnotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    bool   `json:"readOnlyHint,omitempty"`
	Idempotent  bool   `json:"idempotentHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"` // nil counts as true
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`   // nil counts as true
}

// ToolList is the response to GET /v1/tools.
type ToolList struct {
	Tools    []Tool        `json:"tools"`             // by server, then name
	Broken   []BrokenTool  `json:"broken"`            // files and registered tools that are invalid
	Warnings []ToolWarning `json:"warnings"`          // what a person should read before approving
	Servers  []ToolServer  `json:"servers,omitempty"` // descriptions of MCP servers, at the level full
}

// ToolServer is an MCP server's description of itself. It is not approved: selection searches it and people read it,
// but models do not get it.
type ToolServer struct {
	Server       string `json:"server"`
	Version      string `json:"version,omitempty"` // name and version of its implementation
	Title        string `json:"title,omitempty"`
	Description  string `json:"description,omitempty"`
	Instructions string `json:"instructions,omitempty"`
}

// BrokenTool is an invalid tool of the catalogue, with the reason.
type BrokenTool struct {
	Path    string `json:"path"` // below servers/
	Line    int    `json:"line"` // from 1, or 0 for the whole file
	Message string `json:"message"`
}

// ToolWarning is a text of a tool that has hidden characters, or a phrase that instructs models instead of describing
// the tool.
type ToolWarning struct {
	Tool    string `json:"tool"`  // server/name
	Field   string `json:"field"` // name | title | description | schema
	Message string `json:"message"`
}

// ToolSearch is the response to GET /v1/tools/search.
type ToolSearch struct {
	Servers   []ToolGroup `json:"servers"`   // ordered by their best tool
	Available int         `json:"available"` // number of tools searched
	Share     float64     `json:"share"`     // matches ÷ available
	Queries   []ToolQuery `json:"queries"`
	Degraded  string      `json:"degraded,omitempty"` // why the search could not use the configured embeddings
}

// MaxToolQueryBytes is the largest total size of a search's queries, in bytes.
const MaxToolQueryBytes = 20_000

// ToolGroup contains the matching tools of one server, best first.
type ToolGroup struct {
	Server string      `json:"server"`
	Tools  []ToolMatch `json:"tools"`
	More   int         `json:"more"` // number of other tools of this server
}

// ToolMatch is a tool that matches a query.
type ToolMatch struct {
	ID          string       `json:"id"`
	Tool        string       `json:"tool"`
	Score       float64      `json:"score"` // relative to the query's best tool, which has 1
	Import      string       `json:"import,omitempty"`
	Signature   string       `json:"signature,omitempty"`
	Description string       `json:"description,omitempty"`
	Params      []ToolParam  `json:"params,omitempty"` // at the level full
	Types       string       `json:"types,omitempty"`  // the classes that the signature names, at the level full
	Why         *ToolReasons `json:"why,omitempty"`    // if the request has explain
}

// ToolParam is one parameter of a tool, under its Python name.
type ToolParam struct {
	Name        string   `json:"name"`
	Type        string   `json:"type,omitempty"` // as in the signature
	Description string   `json:"description,omitempty"`
	Enum        []string `json:"enum,omitempty"` // strings as they are, other values as Python literals
	Required    bool     `json:"required,omitempty"`
}

// ToolReasons are the parts of a tool's score, and the terms that matched.
type ToolReasons struct {
	// Terms are the matched stems, the highest weight first. A synonym or spelling neighbour of a stem of the query is
	// listed as "neighbour (for stem)".
	Terms   []string `json:"terms"`
	Lexical float64  `json:"lexical"`
	Clause  float64  `json:"clause"`
	Server  float64  `json:"server"`
	Vectors float64  `json:"vectors"` // similarity of word vectors
	Name    float64  `json:"name"`
	History float64  `json:"history"`
	Dense   float64  `json:"dense,omitempty"` // similarity of embeddings
	// OtherOperation reports that the tool's operation is not the query's, or is the opposite, which lowers its score.
	OtherOperation bool `json:"other_operation,omitempty"`
}

// ToolQuery is one query of a search, with its confidence.
type ToolQuery struct {
	Query          string   `json:"query"`
	Tools          []string `json:"tools"`           // ids, best first
	Confidence     float64  `json:"confidence"`      // 0 to 1; if it is low, perhaps no tool fits
	UnmatchedTerms []string `json:"unmatched_terms"` // words of the query that occur in no tool
}
