package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// ExecuteTask runs a task with a description on the fleet that Locate finds. It returns the result and the program's
// output. The error is a *TaskError if the task ended without success, and another error if the fleet refused the task
// or could not be reached.
func ExecuteTask(ctx context.Context, description string) (Result, string, error) {
	a, err := NewAgent(ctx, AgentOptions{})
	if err != nil {
		return Result{}, "", err
	}
	defer func() { _ = a.Close() }() // the task has ended
	return a.ExecuteTask(ctx, description)
}

// AgentOptions configure an agent and its tasks. The zero value is useful.
type AgentOptions struct {
	Options // configure the client; without a URL and a Located.Path, Locate finds the fleet

	// Settings, if not empty, are the settings of a fleet that NewAgent starts on this machine and Close stops. Their
	// names are the keys of config.yaml, such as "execution.workspace_dir", "llm.model" or "execution.state.auto_save";
	// docs/configuration.md explains them. config.yaml, .env and the environment apply to all other keys. Settings need
	// the binary codefleet, on PATH or named by CODEFLEET_BIN. With a URL or a Located.Path, Settings are an error: the
	// settings of a running fleet cannot be changed.
	Settings map[string]string

	Workspace string // the tasks' workspace; the default is the tenant's main workspace
	Session   string // the tasks' session, if any
	Pool      string // the tasks' pool, if any
	Priority  string // high, normal or low

	Model   string   // a model profile of the fleet
	Tools   []string // tools that the tasks may call, as "server/tool" or "server/*"; empty allows all tools
	Network []string // hosts that tasks ask to reach, as "example.org" or "*"; the tenant's settings must permit them
	Limits  Limits
	Labels  map[string]string

	// Verbose receives the stages and the output of each task while it runs. It must be safe for concurrent use if
	// several tasks run at once.
	Verbose io.Writer
}

// Agent runs tasks with common settings. It is safe for concurrent use. Close it after use.
type Agent struct {
	client *Client
	o      AgentOptions
	own    *ownFleet // nil if the agent has not started a fleet
}

// NewAgent returns an agent with a new client. If o.Settings is not empty, it first starts a fleet for the agent.
func NewAgent(ctx context.Context, o AgentOptions) (*Agent, error) {
	if len(o.Settings) > 0 {
		return newAgentWithFleet(ctx, o)
	}
	return newAgent(ctx, o)
}

// newAgentWithFleet starts a fleet with the settings, and returns an agent that uses it.
func newAgentWithFleet(ctx context.Context, o AgentOptions) (*Agent, error) {
	if o.URL != "" || o.Located.Path != "" {
		return nil, errors.New("AgentOptions.Settings: a running fleet's settings cannot be changed; set them in its " +
			"config.yaml, or leave out the URL to start a fleet with them")
	}
	own, found, err := startFleet(ctx, o.Settings)
	if err != nil {
		return nil, err
	}
	o.URL, o.Token, o.Located = found.URL, found.Token, found.Located
	a, err := newAgent(ctx, o)
	if err != nil {
		return nil, errors.Join(err, own.close())
	}
	a.own = own
	return a, nil
}

func newAgent(ctx context.Context, o AgentOptions) (*Agent, error) {
	if o.URL == "" && o.Located.Path == "" {
		found, err := Locate("")
		if err != nil {
			return nil, err
		}
		o.URL, o.Located = found.URL, found.Located
		if o.Token != "" {
			o.Located.Credentials = false
		} else {
			o.Token = found.Token
		}
	}
	c, err := New(ctx, o.Options)
	if err != nil {
		return nil, err
	}
	return &Agent{client: c, o: o}, nil
}

// Client returns the client that the agent uses.
func (a *Agent) Client() *Client { return a.client }

// Close ends the agent's connections. If the agent has started a fleet, Close also stops it, once its running tasks
// have ended or 30 seconds (worker.drain) have passed, and removes its data.
func (a *Agent) Close() error {
	err := a.client.Close()
	if a.own != nil {
		err = errors.Join(err, a.own.close())
	}
	return err
}

// CopyDirectory copies the regular files of a directory of this machine into a directory with the same name in the
// agent's workspace. It leaves out symbolic links and empty directories. Each file is a commit, so after an error some
// files may have been copied. Changes that tasks make are not copied back.
func (a *Agent) CopyDirectory(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	w := a.client.Workspace(a.o.Workspace)
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = w.Put(ctx, path.Join(filepath.Base(dir), name), f, "")
		return err
	})
}

// ExecuteTask runs a task with a description, like the package-level ExecuteTask.
func (a *Agent) ExecuteTask(ctx context.Context, description string) (Result, string, error) {
	return a.Execute(ctx, Task{Description: description})
}

// Execute runs a task and returns what ExecuteTask returns. Fields that the task does not set have the agent's values.
// If ctx ends first, the task continues; to cancel it, use the id in the result, which is empty if the fleet has not
// responded yet.
func (a *Agent) Execute(ctx context.Context, t Task) (Result, string, error) {
	s := a.submission(t)
	var r Record
	var err error
	if a.o.Verbose == nil {
		r, err = a.client.Run(ctx, s)
	} else if r, err = a.client.Submit(ctx, s); err == nil {
		r, err = a.client.Watch(ctx, r.TaskID, 0, a.print)
	}
	if err != nil {
		return Result{TaskID: r.TaskID, Status: r.Status}, "", err
	}
	return outcome(r)
}

// outcome returns what Execute returns for a task with this record.
func outcome(r Record) (Result, string, error) {
	if r.Result == nil {
		return Result{TaskID: r.TaskID, Status: r.Status}, "", fmt.Errorf("task %s is %s and has no result", r.TaskID,
			r.Status)
	}
	if r.Status == Succeeded {
		return *r.Result, r.Result.Output, nil
	}
	e := &TaskError{TaskID: r.TaskID, Status: r.Status}
	e.Detail = schemas.Error{Code: string(r.Status), Message: "the task ended without an error message"}
	if r.Result.Error != nil {
		e.Detail = *r.Result.Error
	}
	return *r.Result, r.Result.Output, e
}

// submission adds the agent's values to a task.
func (a *Agent) submission(t Task) Submission {
	t.Model = cmp.Or(t.Model, a.o.Model)
	if t.Tools == nil && len(a.o.Tools) > 0 {
		t.Tools = &ToolChoice{Allow: a.o.Tools}
	}
	if t.Network == nil && len(a.o.Network) > 0 {
		t.Network = &Network{Allow: a.o.Network}
	}
	if t.Limits == nil && a.o.Limits != (Limits{}) {
		limits := a.o.Limits
		t.Limits = &limits
	}
	if t.Labels == nil {
		t.Labels = maps.Clone(a.o.Labels)
	}
	t.Pool = cmp.Or(t.Pool, a.o.Pool)
	return Submission{Task: t, Workspace: a.o.Workspace, Session: a.o.Session, Priority: a.o.Priority}
}

func (a *Agent) print(e Event) error {
	text := e.Text
	if e.Stage != "" {
		text = fmt.Sprintf("[%s] %s\n", e.Time.Local().Format(time.TimeOnly), e.Stage)
	}
	_, err := io.WriteString(a.o.Verbose, text)
	return err
}
