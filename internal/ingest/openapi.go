package ingest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/names"
)

// openAPI returns the OpenAPI document. It describes all routes, even those that this process does not serve.
func (s *Server) openAPI() ([]byte, error) {
	components, err := schemaComponents()
	if err != nil {
		return nil, err
	}
	paths := object{}
	for _, r := range s.routes() {
		r.describe(paths)
	}
	return json.Marshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title":       "codefleet",
			"version":     "v1",
			"description": "The HTTP interface of a fleet. Every error response is an Error with a stable code.",
			"license":     object{"name": "MIT", "identifier": "MIT"},
		},
		"servers": []object{{"url": "/"}},
		"paths":   paths,
		"components": object{
			"schemas": components,
			"securitySchemes": object{"token": object{
				"type": "http", "scheme": "bearer",
				"description": "A token of a tenant or of an operator. If no tokens are configured, none is needed.",
			}},
		},
	})
}

func (s *Server) getOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	text, err := s.document()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
	return nil
}

var wildcard = regexp.MustCompile(`\{([a-z]+)(\.\.\.)?\}`)

// describe adds the route to the paths of the document.
func (r route) describe(paths object) {
	method, path, ok := strings.Cut(strings.TrimSuffix(r.pattern, "{$}"), " ")
	methods := []string{strings.ToLower(method)}
	if !ok {
		path, methods = r.pattern, r.verbs
	}
	var parameters []object
	for _, m := range wildcard.FindAllStringSubmatch(path, -1) {
		parameters = append(parameters, describeParameter(m[1], "path"))
	}
	for _, name := range r.params {
		parameters = append(parameters, describeParameter(name, ""))
	}
	path = wildcard.ReplaceAllString(path, "{$1}")
	item, _ := paths[path].(object)
	if item == nil {
		item = object{}
		paths[path] = item
	}
	for i, method := range methods {
		o := object{
			"operationId": r.id, "summary": r.summary, "tags": []string{r.tag()}, "responses": r.describeResponses(),
		}
		if i > 0 {
			o["operationId"] = r.id + strings.ToUpper(method[:1]) + method[1:]
		}
		if r.description != "" {
			o["description"] = r.description
		}
		if len(parameters) > 0 {
			o["parameters"] = parameters
		}
		switch r.scope {
		case public:
		case anyScope:
			o["security"] = []object{{"token": []string{}}}
		default:
			o["security"] = []object{{"token": []string{r.scope}}}
		}
		if len(r.bodies) > 0 {
			o["requestBody"] = object{"content": describeContent(r.bodies)}
		}
		item[method] = o
	}
}

func (r route) describeResponses() object {
	out := object{}
	byStatus := map[int][]content{}
	for _, resp := range r.responses {
		byStatus[resp.status] = append(byStatus[resp.status], resp.content)
	}
	for status, list := range byStatus {
		o := object{"description": http.StatusText(status)}
		if list[0].media != "" {
			o["content"] = describeContent(list)
		}
		out[strconv.Itoa(status)] = o
	}
	failures := map[int][]string{}
	for _, code := range r.errorCodes() {
		status := cmp.Or(r.statuses[code], errcode.HTTPStatus(code))
		failures[status] = append(failures[status], code)
	}
	for status, codes := range failures {
		schema := object{"$ref": "#/components/schemas/Error", "properties": object{"code": object{"enum": codes}}}
		out[strconv.Itoa(status)] = object{
			"description": strings.Join(codes, ", "),
			"content":     object{"application/json": object{"schema": schema}},
		}
	}
	return out
}

func describeContent(list []content) object {
	out := object{}
	for _, c := range list {
		out[c.media] = object{"schema": schemaRef(c.schema)}
	}
	return out
}

// schemaRef returns a reference to a component: NAME, []NAME for a list, or A|B for one of several.
func schemaRef(name string) object {
	if item, ok := strings.CutPrefix(name, "[]"); ok {
		return object{"type": "array", "items": schemaRef(item)}
	}
	if names := strings.Split(name, "|"); len(names) > 1 {
		var list []object
		for _, n := range names {
			list = append(list, schemaRef(n))
		}
		return object{"oneOf": list}
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// parameter is a row of the table of parameters.
type parameter struct{ in, text string }

// parameters is the table of path, query and header parameters, by name. A name that occurs both in a path and in a
// query has the same meaning in both.
var parameters = map[string]parameter{
	"id":        {"path", "Id of the task, or of the registration."},
	"path":      {"path", "Path below the workspace; it may contain slashes."},
	"file":      {"path", "Name of the state document: NAME.json or NAME.yaml, or below state/."},
	"name":      {"path", "Name of the schema (as in task.v1.json), schedule, trigger or webhook."},
	"pin":       {"path", "Name of the pin: lower-case letters, digits and -, not a number."},
	"server":    {"query", "Name of a tool server."},
	"tenant":    {"query", "Name of a tenant."},
	"token":     {"path", "Id of a token, which is not the token itself."},
	"worker":    {"path", "Name of a worker."},
	"skill":     {"path", "Name of a skill, as in double-number."},
	"tool":      {"path", "Name of a tool."},
	"run":       {"path", "Id of a workflow run."},
	"session":   {"path", "Name of the session."},
	"workspace": {"query", "Name of the workspace; default main."},

	"wait":    {"query", "How long to wait for the task to end, as in 30s or 30; the server may shorten it."},
	"until":   {"query", "What ends the wait: the end of the task, or also a tool call that waits for approval."},
	"known":   {"query", "With until=approval: ids of calls, separated by commas, that do not end the wait."},
	"status":  {"query", "Only tasks with one of these statuses."},
	"asking":  {"query", "If true, only runs with a step that waits for an answer."},
	"limit":   {"query", "Maximum number of items; default 100, or 20 for each query of a search."},
	"seq":     {"query", "Number of the first dead letter to redrive."},
	"task":    {"query", "Only calls of this task."},
	"detail":  {"query", "How much of each tool to return; default description."},
	"exposed": {"query", "If true, only tools that the MCP bridge offers as its own."},
	"explain": {"query", "Whether to explain each tool's score."},
	"q":       {"query", "What the tools should do; once for each step, at most 20 times."},

	"version":    {"query", "Number of a skill's version; GET: default the newest; DELETE: only if it is the newest."},
	"generation": {"query", "The version: a generation or a pin; default the newest."},
	"from":       {"query", "The older version: a generation or a pin."},
	"to":         {"query", "The newer version: a generation or a pin; default the newest."},
	"dir":        {"query", "Only paths below this directory."},
	"base":       {"query", "The generation that the changes are based on."},
	"message":    {"query", "Message of the commit, at most 1000 bytes."},
	"format":     {"query", "Format of the archive; default zip."},

	"cause":  {"query", "Only dead letters with this error code."},
	"since":  {"query", "The first day, in UTC, as in 2026-11-23; default 30 days ago."},
	"before": {"query", "The day after the last one; default tomorrow."},
	"all":    {"query", "Whether to read the usage of all tenants; for operators."},
	"pool":   {"query", "The task pool; default all."},
	"within": {"query", "The time in which the queued work is to be done, as in 90s; default 60s."},

	"Idempotency-Key":        {"header", "Requests with the same tenant, source and key are one task or workflow run."},
	"Last-Event-ID":          {"header", "Continue the stream after this event."},
	"WebHook-Request-Origin": {"header", "The origin from which events will be sent."},
	"If-Match":               {"header", "Change only this version: an ETag in quotes, or *."},
	"If-None-Match":          {"header", "GET responds with 304 if this ETag is current. PUT accepts only * (create)."},
	"Range":                  {"header", "Ranges of bytes."},
	modeHeader:               {"header", "Permission bits of the file in octal, as in 0644."},
	timeHeader:               {"header", "Modification time of the file, RFC 3339."},
}

// parameterSchemas are the schemas, in JSON, of the parameters that are not just strings.
var parameterSchemas = map[string]string{
	"run":       `{"type":"string","pattern":"^[a-z2-7]{26}$"}`,
	"id":        `{"type":"string","pattern":"^[a-z2-7]{26}$"}`,
	"session":   `{"type":"string","pattern":"` + names.Pattern + `"}`,
	"workspace": `{"type":"string","pattern":"` + names.Pattern + `"}`,
	"until":     `{"enum":["end","approval"]}`,
	"status":    `{"type":"array","items":{"$ref":"#/components/schemas/Record/$defs/status"}}`,
	"asking":    `{"type":"boolean"}`,
	"limit":     `{"type":"integer","minimum":1,"maximum":1000}`,
	"seq":       `{"type":"integer","minimum":0}`,
	"task":      `{"type":"string","pattern":"^[a-z2-7]{26}$"}`,
	"detail":    `{"enum":["name","description","full"]}`,
	"exposed":   `{"type":"boolean"}`,
	"explain":   `{"type":"boolean"}`,
	"all":       `{"type":"boolean"}`,
	"q":         `{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":20}`,
	"base":      `{"type":"integer","minimum":0}`,
	"format":    `{"enum":["zip","tar"]}`,
	"version":   `{"type":"integer","minimum":1}`,
}

// describeParameter describes a parameter. in, unless it is empty, replaces the location in the table.
func describeParameter(name, in string) object {
	p, ok := parameters[name]
	if !ok {
		panic(fmt.Sprintf("ingest: parameter %s is not in the table", name))
	}
	o := object{
		"name": name, "in": cmp.Or(in, p.in), "description": p.text,
		"schema": json.RawMessage(cmp.Or(parameterSchemas[name], `{"type":"string"}`)),
	}
	if in == "path" {
		o["required"] = true
	}
	return o
}
