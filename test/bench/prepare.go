package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/pygen"
	"github.com/codefleet/codefleet/internal/toolsearch"
)

// npmTools contains the recorded results of tools/list of six MCP servers from npm: everything, filesystem, git,
// memory, sequential-thinking and sqlite. internal/tools/toolstest/npm/install.sh pins their versions. Their licences
// are MIT and Apache-2.0.
//
//go:embed npm_tools.json
var npmTools []byte

// contextTasks are the tasks for which the size of the prompt is measured.
var contextTasks = []string{
	"Commit all staged changes with the message 'fix the parser'",
	"Show the diff between the branches main and release",
	"Read the file notes.txt and count its lines",
	"List the directory data and move every log file to archive",
	"Create an entity for Ada Lovelace and add the observation that she wrote the first program",
	"Search the knowledge graph for people",
	"Run the SQL query 'SELECT * FROM users' and print the names",
	"Create a branch named feature-x and switch to it",
	"Which tables are in the database? Describe each of them",
	"Search for files that match *.go, then read them",
	"Echo hello and add 2 and 3",
	"Think step by step about how to split the work",
}

// prepare measures the time that a program's generation takes besides the model, and the size of the prompt.
func (b *run) prepare(ctx context.Context) error {
	six, err := b.npmCatalogue(ctx, 1)
	if err != nil {
		return err
	}
	if err := b.promptShare(six); err != nil {
		return err
	}
	many, err := b.npmCatalogue(ctx, 500)
	if err != nil {
		return err
	}
	model, err := startStub(ctx)
	if err != nil {
		return err
	}
	defer model.close()
	writer, err := model.writer()
	if err != nil {
		return err
	}
	prepare := preparer(many)
	name := fmt.Sprintf("prepare with %d tools", len(many.Tools))
	i := 0
	err = b.SideBySide(ctx, bench.Plan{Samples: b.N, PerTurn: 10},
		bench.Series{Name: name, Unit: "ms", Measure: func(ctx context.Context) (bench.Sample, error) {
			began := time.Now()
			i++
			request, err := prepare(contextTasks[i%len(contextTasks)])
			selected := bench.Since(began)
			if err != nil {
				return bench.Sample{}, err
			}
			if _, err := writer.Write(ctx, request, codegen.Call{}); err != nil {
				return bench.Sample{}, err
			}
			modelTime := float64(model.took.Load()) / float64(time.Millisecond)
			return bench.Sample{
				Value: bench.Since(began) - modelTime, Parts: map[string]float64{"select": selected},
			}, nil
		}})
	if err != nil {
		return err
	}
	b.AtMost("prepare", name+": select, render, request over HTTP, extract the program; without the model's time",
		b.Median(name), 5, "ms")
	return nil
}

// preparer returns a function that selects the tools for a description and returns the request for a program.
func preparer(listing *tools.Listing) func(description string) (codegen.Request, error) {
	index := toolsearch.New(nil).Index(listing)
	return func(description string) (codegen.Request, error) {
		ids, _, err := index.Pick(context.Background(), toolsearch.Wanted{
			Description: description, Allow: []string{"*"},
		})
		return codegen.Request{Task: description, Tools: index.Definitions(ids)}, err
	}
}

// promptShare compares the tokens of the tools in the prompt with the tokens of the whole tools/list.
func (b *run) promptShare(six *tools.Listing) error {
	list, err := json.Marshal(definitions(six))
	if err != nil {
		return err
	}
	full := codegen.Tokens(string(list))
	prepare := preparer(six)
	table := bench.Table{Title: fmt.Sprintf("In the prompt, in tokens (tools/list of the six servers: %d "+
		"tools, %d tokens)", len(six.Tools), full), Columns: []string{
		"task", "tools", "of tools", "share %", "whole prompt",
	}}
	for _, task := range contextTasks {
		request, err := prepare(task)
		if err != nil {
			return err
		}
		prompted, whole, err := promptTokens(request)
		if err != nil {
			return err
		}
		share := 100 * float64(prompted) / float64(full)
		b.Add("context of tools", "%", share)
		b.Add("context, whole prompt", "%", 100*float64(whole)/float64(full))
		table.Rows = append(table.Rows, []string{
			task, strconv.Itoa(len(request.Tools)), strconv.Itoa(prompted), fmt.Sprintf("%.2f", share),
			strconv.Itoa(whole),
		})
	}
	b.Summarise()
	b.Tables = append(b.Tables, table)
	b.AtMost("context", "tokens of the tools in the prompt ÷ tokens of tools/list, median",
		b.Median("context of tools"), 2, "%")
	b.AtMost("context prompt", "tokens of the whole prompt (rules, tools, task) ÷ tokens of tools/list, median",
		b.Median("context, whole prompt"), 4, "%")
	return nil
}

// promptTokens returns the tokens that the tools add to a prompt, and the tokens of the whole prompt.
func promptTokens(r codegen.Request) (tools, whole int, err error) {
	bare := r
	bare.Tools = nil
	without, err := tokens(bare)
	if err != nil {
		return 0, 0, err
	}
	whole, err = tokens(r)
	return whole - without, whole, err
}

func tokens(r codegen.Request) (n int, err error) {
	messages, err := codegen.Messages(r)
	for _, m := range messages {
		n += codegen.Tokens(m.Text)
	}
	return n, err
}

func definitions(listing *tools.Listing) (out []tools.Definition) {
	for _, t := range listing.Tools {
		out = append(out, t.Definition())
	}
	return out
}

// npmCatalogue writes the approved modules of the six servers and reads them. It repeats the servers under other names
// until there are at least as many tools as requested.
func (b *run) npmCatalogue(ctx context.Context, atLeast int) (*tools.Listing, error) {
	var servers []struct {
		Server  string             `json:"server"`
		Version string             `json:"version"`
		Tools   []tools.Definition `json:"tools"`
	}
	if err := json.Unmarshal(npmTools, &servers); err != nil {
		return nil, fmt.Errorf("read the recorded tools: %w", err)
	}
	dir, approvals, written := b.NewDir(), tools.Approvals{}, 0
	for round := 1; round == 1 || written < atLeast; round++ {
		for _, s := range servers {
			if round > 1 {
				s.Server = fmt.Sprintf("%s-%d", s.Server, round)
			}
			p, err := pygen.Generate(pygen.Source{
				Server: s.Server, About: tools.About{Version: s.Version}, Tools: s.Tools,
			})
			if err != nil {
				return nil, err
			}
			if _, err := pygen.Write(dir, p); err != nil {
				return nil, err
			}
			for _, d := range p.Definitions.Tools {
				approvals.Approve(s.Server, d, "bench", time.Now())
				written++
			}
		}
	}
	if err := approvals.Save(dir); err != nil {
		return nil, err
	}
	return tools.OpenCatalogue(dir, tools.Options{}).Read(ctx)
}

// stub is a model over HTTP. It responds to each request at once with the same program.
type stub struct {
	server *http.Server
	base   string
	took   atomic.Int64 // nanoseconds that the last response took
}

// stubProgram is the program as the content of a JSON string.
const stubProgram = "```python\\nresult = 1\\n```"

const stubResponse = `data: {"choices":[{"index":0,"delta":{"content":"` + stubProgram + `"},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}}

data: [DONE]

`

func startStub(ctx context.Context) (*stub, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &stub{base: "http://" + listener.Addr().String() + "/v1"}
	s.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request,
	) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		began := time.Now()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stubResponse)
		s.took.Store(int64(time.Since(began)))
	})}
	go func() { _ = s.server.Serve(listener) }() // returns after close
	return s, nil
}

func (s *stub) close() { _ = s.server.Close() }

func (s *stub) writer() (*codegen.Writer, error) {
	model, err := codegen.NewOpenAI(codegen.OpenAIOptions{BaseURL: s.base, APIKey: "none", Model: "stub"})
	if err != nil {
		return nil, err
	}
	return codegen.NewWriter(model, codegen.WriterOptions{}), nil
}
