package pipeline

import (
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/schemas"
)

// asksFor reads the hosts that the task may reach. The queue has refused those that its tenant may not.
func (t *task) asksFor() *schemas.Error {
	n := t.job.Task.Network
	if n == nil {
		return nil
	}
	var err error
	if t.network, _, err = allowlist.ParseAll(n.Allow); err != nil {
		return &schemas.Error{Code: errcode.BadData, Message: "/network/allow: " + err.Error(), Hint: "a host is written as example.org or *.example.org"}
	}
	return nil
}

// reach names what the task may reach: boxes are shared by tasks of the same reach alone.
func (t *task) reach() string {
	names := make([]string, len(t.network))
	for i, p := range t.network {
		names[i] = p.String()
	}
	return strings.Join(names, " ")
}

// openNetwork gives a run its way out, where it may have one. The function returned closes it after
// the run and accounts for it.
func (p *Pipeline) openNetwork(t *task, hooks *executor.Hooks) func() {
	if len(t.network) == 0 {
		return func() {}
	}
	o := p.Network
	o.Allow = t.network
	proxy := egress.New(o)
	hooks.Network = proxy.Serve
	return func() {
		proxy.Close()
		t.tried(proxy.Attempts())
	}
}

// tried adds what a run has tried to what earlier runs have: it happened.
func (t *task) tried(attempts []egress.Attempt) {
	for _, a := range attempts {
		i := slices.IndexFunc(t.result.Egress, func(e schemas.EgressAttempt) bool {
			return e.Host == a.Host && e.Port == a.Port && e.Verdict == a.Verdict
		})
		if i < 0 {
			t.result.Egress = append(t.result.Egress, schemas.EgressAttempt{Host: a.Host, Port: a.Port, Verdict: a.Verdict})
			i = len(t.result.Egress) - 1
		}
		t.result.Egress[i].Bytes += a.Bytes
	}
}

// noRoute matches how Python says that there is no network. A proxy that refuses says why itself.
var noRoute = regexp.MustCompile(`Temporary failure in name resolution|Name or service not known|Network is unreachable`)

// hintNetwork tells a program that wanted out, and whose task asked for no host, how a task asks.
func (t *task) hintNetwork() {
	e := t.result.Error
	if e == nil || e.Hint != "" || len(t.network) > 0 || !noRoute.MatchString(e.Message) {
		return
	}
	e.Hint = "programs have no network unless their task names the hosts: codefleet run --net HOST, or network.allow in the task"
}
