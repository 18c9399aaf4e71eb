package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// ExecuteTask describes a task in words, has it done and returns what came of it: the whole result,
// the program's output, and an error unless the task succeeded. An *TaskError says that the program
// ended otherwise, any other error that the fleet could not be asked. The fleet is found as Locate
// finds it.
func ExecuteTask(ctx context.Context, description string) (Result, string, error) {
	a, err := NewAgent(ctx, AgentOptions{})
	if err != nil {
		return Result{}, "", err
	}
	defer func() { _ = a.Close() }() // says nothing about the task
	return a.ExecuteTask(ctx, description)
}

// AgentOptions says how the tasks of an agent are to be run. The zero value is useful.
type AgentOptions struct {
	Options // the fleet; with an empty URL it is found as Locate finds it

	Workspace string // whose files the tasks see and change; empty is the tenant's main one
	Session   string // the session they belong to
	Priority  string // high, normal or low

	Model  string   // a model profile of the fleet
	Tools  []string // the only tools they may use, as "server/tool" or "server/*"; empty allows all
	Limits Limits
	Labels map[string]string

	// Verbose receives the steps and the output of each task as they happen.
	Verbose io.Writer
}

// Agent runs tasks, all in the same way. It is safe for concurrent use; Close it after use.
type Agent struct {
	client *Client
	o      AgentOptions
}

// NewAgent returns an agent with a client of its own.
func NewAgent(ctx context.Context, o AgentOptions) (*Agent, error) {
	if o.URL == "" {
		found, err := Locate("")
		if err != nil {
			return nil, err
		}
		o.URL, o.Token = found.URL, cmp.Or(o.Token, found.Token)
	}
	c, err := New(ctx, o.Options)
	if err != nil {
		return nil, err
	}
	return &Agent{client: c, o: o}, nil
}

// Client returns the client that the agent uses.
func (a *Agent) Client() *Client { return a.client }

// Close ends the agent's connections.
func (a *Agent) Close() error { return a.client.Close() }

// ExecuteTask has a task done that is described in words; see the function of the same name.
func (a *Agent) ExecuteTask(ctx context.Context, description string) (Result, string, error) {
	return a.Execute(ctx, Task{Description: description})
}

// Execute has a task done; what the task leaves open is as the agent's options say. It returns what
// ExecuteTask returns. When ctx ends first the task goes on; Cancel it by its id in the result.
func (a *Agent) Execute(ctx context.Context, t Task) (Result, string, error) {
	s := a.submission(t)
	var r Record
	var err error
	if a.o.Verbose == nil {
		r, err = a.client.Run(ctx, s)
	} else if r, err = a.client.Submit(ctx, s); err == nil {
		r, err = a.client.Watch(ctx, r.TaskID, 0, a.show)
	}
	if err != nil {
		return Result{TaskID: r.TaskID, Status: r.Status}, "", err
	}
	return outcome(r)
}

func outcome(r Record) (Result, string, error) {
	if r.Result == nil {
		return Result{TaskID: r.TaskID, Status: r.Status}, "", fmt.Errorf("task %s is %s and has no result", r.TaskID, r.Status)
	}
	if r.Status == Succeeded {
		return *r.Result, r.Result.Output, nil
	}
	e := &TaskError{TaskID: r.TaskID, Status: r.Status, Detail: schemas.Error{Code: string(r.Status), Message: "the task ended without a reason"}}
	if r.Result.Error != nil {
		e.Detail = *r.Result.Error
	}
	return *r.Result, r.Result.Output, e
}

func (a *Agent) submission(t Task) Submission {
	t.Model = cmp.Or(t.Model, a.o.Model)
	if t.Tools == nil && len(a.o.Tools) > 0 {
		t.Tools = &ToolChoice{Allow: a.o.Tools}
	}
	if t.Limits == nil && a.o.Limits != (Limits{}) {
		limits := a.o.Limits
		t.Limits = &limits
	}
	if t.Labels == nil {
		t.Labels = maps.Clone(a.o.Labels)
	}
	return Submission{Task: t, Workspace: a.o.Workspace, Session: a.o.Session, Priority: a.o.Priority}
}

func (a *Agent) show(e Event) error {
	text := e.Text
	if e.Stage != "" {
		text = fmt.Sprintf("[%s] %s\n", e.Time.Local().Format(time.TimeOnly), e.Stage)
	}
	_, err := io.WriteString(a.o.Verbose, text)
	return err
}
