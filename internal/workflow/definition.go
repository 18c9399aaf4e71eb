// Package workflow checks the definitions of workflows and computes what a run does next. It is pure: it reads no
// clock and no store. Compile returns a Plan; Plan.Advance takes the record of a run and an event, such as the end of a
// step's task, and returns the next record. Package engine stores the records and does what they say.
package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/expression"
	"github.com/codefleet/codefleet/internal/form"
	"github.com/codefleet/codefleet/internal/statedoc"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Limits.
const (
	MaxDefinition  = 256 << 10           // bytes of a definition, as JSON
	MaxValue       = 256 << 10           // bytes of the inputs, and of each result that expressions use
	MaxRecord      = 256 << 10           // bytes of a run's record
	MaxTime        = 30 * 24 * time.Hour // time limit of a run
	maxDepth       = 4                   // levels of workflows within workflows, with the outermost
	maxSteps       = 500                 // steps in a workflow and the workflows within it
	maxExpressions = 2000                // in a workflow and the workflows within it
	maxSource      = 64 << 10            // bytes of all expressions
	maxQuoted      = 200                 // bytes of an expression in an error
	maxNesting     = 64                  // levels of lists and objects in values
	maxInstances   = 1200                // steps and items of a run
	defaultTime    = 24 * time.Hour
	finallyTime    = time.Hour // time for the steps under finally, from the run's deadline
)

// Plan is a definition that was checked. It is safe for concurrent use.
type Plan struct {
	Definition schemas.Workflow

	steps   []*step // the steps under finally come last
	index   map[string]int
	outputs map[string]*template
	time    time.Duration
}

// step is a step of a plan.
type step struct {
	schemas.Step
	finally bool
	needs   []int        // indexes of steps
	before  map[int]bool // indexes of all steps that have ended before this one begins

	when    *expression.Expression
	list    *expression.Expression // the list of for_each, if it is an expression
	items   []*template            // the list of for_each, if it is written out
	with    *template
	text    *template // the description of a task, or the message of ask
	until   *template
	filter  *expression.Expression
	form    form.Form
	sub     *Plan
	timeout time.Duration // 0 means no limit
	delay   time.Duration // how long a wait takes, or the time before the second attempt
}

// ToJSON returns a definition, which is JSON or YAML, as JSON.
func ToJSON(content []byte) (json.RawMessage, error) {
	name := "workflow.yaml"
	if json.Valid(content) {
		name = "workflow.json"
	}
	if len(content) > MaxDefinition {
		return nil, fmt.Errorf("the workflow is %d bytes; the limit is %d", len(content), MaxDefinition)
	}
	return statedoc.ToJSON(name, content)
}

// Compile checks a definition. The error is a *schemas.InvalidError that lists everything that is wrong with it.
func Compile(definition json.RawMessage) (*Plan, error) {
	if len(definition) > MaxDefinition {
		return nil, &schemas.InvalidError{Schema: schemas.WorkflowV1, At: []schemas.Invalid{
			{Message: fmt.Sprintf("the workflow is %d bytes; the limit is %d", len(definition), MaxDefinition)},
		}}
	}
	var w schemas.Workflow
	err := schemas.Decode(schemas.WorkflowV1, definition, &w)
	if _, ok := errors.AsType[*schemas.InvalidError](err); err != nil && !ok {
		err = &schemas.InvalidError{Schema: schemas.WorkflowV1, At: []schemas.Invalid{{Message: err.Error()}}}
	}
	if err != nil {
		return nil, err
	}
	c := checker{}
	p := c.plan(w, "", 1)
	if c.count > maxSteps {
		c.add("", "the workflow has %d steps; the limit is %d", c.count, maxSteps)
	}
	if len(c.found) > 0 {
		return nil, &schemas.InvalidError{Schema: schemas.WorkflowV1, At: c.found}
	}
	return p, nil
}

// checker collects what is wrong with a definition.
type checker struct {
	found       []schemas.Invalid
	count       int // steps
	expressions int
	bytes       int  // bytes of expressions
	full        bool // there are too many expressions
}

func (c *checker) add(path, format string, args ...any) {
	c.found = append(c.found, schemas.Invalid{Path: path, Message: fmt.Sprintf(format, args...)})
}

// plan checks a workflow at a path. depth is 1 for the outermost.
func (c *checker) plan(w schemas.Workflow, path string, depth int) *Plan {
	p := &Plan{Definition: w, index: map[string]int{}, outputs: map[string]*template{}, time: defaultTime}
	if depth > maxDepth {
		c.add(path, "workflows within workflows are nested more than %d deep", maxDepth)
		return p
	}
	if w.Timeout != "" {
		p.time = c.duration(path+"/timeout", w.Timeout)
	}
	for name, in := range w.Inputs {
		at := path + "/inputs/" + name
		if len(in.Default) > 0 {
			if err := checkInput(in, in.Default); err != nil {
				c.add(at+"/default", "%s", err)
			}
		}
		for i, v := range in.Enum {
			if err := checkType(in.Type, v); err != nil {
				c.add(fmt.Sprint(at, "/enum/", i), "%s", err)
			}
		}
	}
	paths := c.steps(p, w, path)
	c.order(p, paths)
	for i, s := range p.steps {
		c.step(p, i, s, paths[i], depth)
	}
	for name, out := range w.Outputs {
		at := path + "/outputs/" + name + "/value"
		t := c.template(at, out.Value, scope{plan: p, step: -1, variables: []string{"inputs", "run", "steps"}})
		p.outputs[name] = t
	}
	return p
}

// steps adds the steps to the plan, and returns their paths.
func (c *checker) steps(p *Plan, w schemas.Workflow, path string) (paths []string) {
	add := func(list []schemas.Step, finally bool, at string) {
		for i, s := range list {
			here := fmt.Sprint(path, "/", at, "/", i)
			if _, twice := p.index[s.ID]; twice {
				c.add(here+"/id", "another step has the id %s", s.ID)
			}
			p.index[s.ID] = len(p.steps)
			p.steps = append(p.steps, &step{Step: s, finally: finally, before: map[int]bool{}})
			paths = append(paths, here)
		}
	}
	add(w.Steps, false, "steps")
	add(w.Finally, true, "finally")
	c.count += len(p.steps)
	return paths
}

// order sets which steps each step needs, and which end before it begins. It reports cycles.
func (c *checker) order(p *Plan, paths []string) {
	for i, s := range p.steps {
		if s.Needs == nil {
			if i > 0 && p.steps[i-1].finally == s.finally {
				s.needs = []int{i - 1}
			}
			continue
		}
		for k, id := range *s.Needs {
			at := fmt.Sprint(paths[i], "/needs/", k)
			j, ok := p.index[id]
			switch {
			case !ok:
				c.add(at, "there is no step %s%s", id, p.suggestion(id))
			case p.steps[j].finally != s.finally:
				c.add(at, "steps under finally and other steps cannot need each other: those under finally come last")
			default:
				s.needs = append(s.needs, j)
			}
		}
	}
	state := make([]int, len(p.steps)) // 1 while a step is visited, 2 afterwards
	var visit func(i int, way []int)
	visit = func(i int, way []int) {
		if state[i] == 1 {
			names := []string{}
			for _, j := range way[slices.Index(way, i):] {
				names = append(names, p.steps[j].ID)
			}
			c.add(paths[i]+"/needs", "the steps need each other in a circle: %s",
				strings.Join(append(names, p.steps[i].ID), " → "))
			return
		}
		if state[i] == 2 {
			return
		}
		state[i] = 1
		for _, j := range p.steps[i].needs {
			visit(j, append(slices.Clone(way), i))
			p.steps[i].before[j] = true
			for k := range p.steps[j].before {
				p.steps[i].before[k] = true
			}
		}
		state[i] = 2
	}
	for i, s := range p.steps {
		visit(i, nil)
		for j, other := range p.steps {
			if s.finally && !other.finally {
				s.before[j] = true
			}
		}
	}
}

// suggestion returns the end of a message about an unknown step, with the most similar id if there is one.
func (p *Plan) suggestion(id string) string {
	ids := make([]string, len(p.steps))
	for i, s := range p.steps {
		ids[i] = s.ID
	}
	if near := text.Nearest(id, ids, max(2, len(id)/3)); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// step checks one step.
func (c *checker) step(p *Plan, i int, s *step, path string, depth int) {
	variables := []string{"inputs", "run", "steps"}
	outer := scope{plan: p, step: i, variables: variables}
	inner := outer
	if s.ForEach != nil {
		inner.variables = []string{"index", "inputs", "item", "run", "steps"}
		c.forEach(s, path+"/for_each", outer)
	}
	if s.When != "" {
		s.when = c.expression(path+"/when", s.When, outer)
		if s.when != nil && !s.when.IsCondition() {
			c.add(path+"/when", "the expression %q is not true or false", text.Truncate(s.When, maxQuoted))
		}
	}
	s.timeout = c.duration(path+"/timeout", s.Timeout)
	if s.With != nil {
		s.with = c.template(path+"/with", s.With, inner)
	}
	if s.Retry != nil {
		if s.Wait != nil || s.Ask != nil || s.Emit != nil {
			c.add(path+"/retry", "only steps that are tasks or workflows are tried again")
		}
		s.delay = c.duration(path+"/retry/backoff", s.Retry.Backoff)
		if s.Retry.Backoff == "" {
			s.delay = time.Second
		}
	}
	isTask := s.Code != "" || s.Task != "" || s.Skill != "" || s.Tool != ""
	if s.Options != nil && !isTask {
		c.add(path+"/options", "only steps that are tasks have options")
	}
	switch {
	case s.Task != "":
		s.text = c.text(path+"/task", s.Task, inner)
	case s.Ask != nil:
		s.text = c.text(path+"/ask/message", s.Ask.Message, inner)
		s.form = c.form(path+"/ask/form", s.Ask.Form)
	case s.Wait != nil:
		c.wait(s, path+"/wait", inner)
	case s.Emit != nil && strings.HasPrefix(s.Emit.Type, "codefleet."):
		c.add(path+"/emit/type", "types that begin with codefleet. are the fleet's own")
	case s.Workflow != nil:
		if s.sub = c.plan(*s.Workflow, path+"/workflow", depth+1); s.Timeout != "" {
			c.add(path+"/timeout", "the workflow of the step has its own timeout")
		}
	}
	if (s.Wait != nil || s.Ask != nil) && s.With != nil {
		c.add(path+"/with", "a step that waits or asks has no inputs")
	}
}

func (c *checker) forEach(s *step, path string, in scope) {
	var source string
	if json.Unmarshal(s.ForEach.In, &source) == nil {
		s.list = c.expression(path+"/in", source, in)
		if s.ForEach.Max == 0 {
			c.add(path+"/max", "a loop whose list is an expression needs a limit of its items, such as max: 100")
		}
		return
	}
	var list []json.RawMessage
	if err := json.Unmarshal(s.ForEach.In, &list); err != nil {
		c.add(path+"/in", "%s", err)
	}
	for i, item := range list {
		s.items = append(s.items, c.template(fmt.Sprint(path, "/in/", i), item, in))
	}
	if s.ForEach.Max > 0 && len(list) > s.ForEach.Max {
		c.add(path+"/in", "the list has %d items, more than max", len(list))
	}
}

func (c *checker) wait(s *step, path string, in scope) {
	switch w := s.Wait; {
	case w.For != "":
		s.delay = c.duration(path+"/for", w.For)
	case w.Until != "":
		if s.until = c.text(path+"/until", w.Until, in); s.until != nil && len(s.until.uses) == 0 {
			if _, err := time.Parse(time.RFC3339, w.Until); err != nil {
				c.add(path+"/until", "it is not a time such as 2027-01-31T09:00:00Z")
			}
		}
	case w.Event != nil:
		for at, pattern := range map[string]string{"type": w.Event.Type, "source": w.Event.Source} {
			if strings.Contains(strings.TrimSuffix(pattern, "*"), "*") {
				c.add(path+"/event/"+at, "a * may stand at the end only")
			}
		}
		if w.Event.Filter != "" {
			in.variables = slices.Sorted(slices.Values(append(slices.Clone(in.variables), "data", "event")))
			s.filter = c.expression(path+"/event/filter", w.Event.Filter, in)
			if s.filter != nil && !s.filter.IsCondition() {
				c.add(path+"/event/filter", "the expression %q is not true or false",
					text.Truncate(w.Event.Filter, maxQuoted))
			}
		}
	}
}

// duration returns the duration of a text, or 0 if it is empty.
func (c *checker) duration(path, s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil || d <= 0:
		c.add(path, "%q is not a duration such as 30s, 10m or 24h", s)
	case d > MaxTime:
		c.add(path, "%s is longer than 30 days (720h), which is the limit", s)
	}
	return d
}

// scope is where an expression stands: in a step, or in the outputs if step is -1.
type scope struct {
	plan      *Plan
	step      int
	variables []string
}

// fields are the members of a step in expressions.
var fields = []string{"error", "result", "status"}

// expression compiles an expression and checks what it refers to. It returns nil if it is not valid.
func (c *checker) expression(path, source string, in scope) *expression.Expression {
	c.expressions++
	c.bytes += len(source)
	if c.expressions > maxExpressions || c.bytes > maxSource {
		if !c.full {
			c.add(path, "the workflow has more than %d expressions, or more than %d bytes of them",
				maxExpressions, maxSource)
		}
		c.full = true
		return nil
	}
	e, err := expression.CompileValue(source, in.variables...)
	if err != nil {
		c.add(path, "%s", strings.ReplaceAll(err.Error(), "\n", " "))
		return nil
	}
	inputs, _ := e.Members("inputs")
	for name := range inputs {
		if _, ok := in.plan.Definition.Inputs[name]; !ok {
			c.add(path, "the workflow has no input %s", name)
		}
	}
	steps, complete := e.Members("steps")
	if !complete {
		c.add(path, "name the step: steps.ID, followed by .result, .status or .error")
	}
	for id, members := range steps {
		j, ok := in.plan.index[id]
		switch {
		case !ok:
			c.add(path, "there is no step %s%s", id, in.plan.suggestion(id))
			continue
		case in.step >= 0 && !in.plan.steps[in.step].before[j]:
			c.add(path, "step %s may not have ended before this step: add it to needs", id)
		}
		for _, m := range members {
			if !slices.Contains(fields, m) {
				c.add(path, "a step has no %s: write steps.%s.result, .status or .error", m, id)
			}
		}
	}
	return e
}
