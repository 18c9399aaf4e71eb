// Package registered keeps which tools the processes of each tenant serve, as those processes say it
// every few seconds, makes Python modules of them, and calls them. All that such a process says is
// data from outside, and touches its own tenant only. The package knows no queue: it is given what was
// heard, and a way to send. The key type is Registry.
package registered

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/pygen"
)

// Send carries a call to one of the tenant's processes that serve the tool, and the answer back. An
// error that is ErrNobody or ErrAgain says that the call was not made.
type Send func(ctx context.Context, tenant, server, tool string, data []byte) ([]byte, error)

// Errors of a Send.
var (
	ErrNotServed = errors.New("no process serves the tool")
	ErrRetry     = errors.New("ask again") // another process may serve it
)

const (
	// heardFor is how long a process that is silent counts as there.
	instanceTTL  = 10 * time.Second
	maxInstances = 64 // of a tenant
	maxTenants   = 10_000
)

// Registry is safe for concurrent use.
type Registry struct {
	send     Send
	log      *slog.Logger
	reserved map[string]bool // directories

	mu      sync.Mutex
	tenants map[string]*tenant
}

type tenant struct {
	instances map[string]*instance // held by Registry.mu

	mu      sync.Mutex     // one tenant's many tools are no other's delay
	overlay *tools.Overlay // of key
	key     [32]byte
	defs    map[string]tools.OfferedTool // by server/tool, of the overlay
}

type instance struct {
	data    []byte
	sum     [32]byte
	updated time.Time
}

// New returns an empty registry. The servers in reserved are the fleet's, whether its catalogue has
// tools of them or not: a call of one of those goes to the fleet's server, so no tenant may say what
// its tools are.
func New(send Send, log *slog.Logger, reserved ...string) *Registry {
	r := &Registry{send: send, log: log, reserved: map[string]bool{}, tenants: map[string]*tenant{}}
	for _, server := range reserved {
		r.reserved[pygen.Identifier(server)] = true
	}
	return r
}

// Heard takes what a process says that it serves; nothing means that it has gone. What it says is
// understood when the tenant's tools are asked for.
func (r *Registry) Update(name, process string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tenants[name]
	if len(data) == 0 {
		if t != nil {
			delete(t.instances, process)
			r.deleteIfEmpty(name, t)
		}
		return
	}
	if t == nil {
		if len(r.tenants) >= maxTenants {
			return
		}
		t = &tenant{instances: map[string]*instance{}}
		r.tenants[name] = t
	}
	now := time.Now()
	known := t.instances[process]
	switch {
	case known != nil && bytes.Equal(known.data, data):
		known.updated = now
	case known == nil && len(t.instances) >= maxInstances && !t.expire(now):
		r.log.Warn("tools of a process not taken: the tenant has too many", "tenant", name, "processes", maxInstances)
	default:
		t.instances[process] = &instance{data: bytes.Clone(data), sum: sha256.Sum256(data), updated: now}
	}
}

// sweep forgets the silent, and reports whether there were any.
func (t *tenant) expire(now time.Time) bool {
	before := len(t.instances)
	maps.DeleteFunc(t.instances, func(_ string, i *instance) bool { return now.Sub(i.updated) > instanceTTL })
	return len(t.instances) < before
}

func (r *Registry) deleteIfEmpty(name string, t *tenant) {
	if len(t.instances) == 0 {
		delete(r.tenants, name)
	}
}

// Overlay is what the tenant's processes serve now: the same value until that changes, nil when they
// serve nothing.
func (r *Registry) Overlay(name string) *tools.Overlay {
	t, unlock := r.current(name)
	defer unlock()
	if t == nil {
		return nil
	}
	return t.overlay
}

// Listed is one tool that processes of a tenant serve.
type Tool struct {
	Server     string
	Definition tools.Definition
}

// List returns the tools that the tenant's processes serve now, by server and name.
func (r *Registry) List(name string) []Tool {
	t, unlock := r.current(name)
	defer unlock()
	if t == nil {
		return nil
	}
	var out []Tool
	for _, id := range slices.Sorted(maps.Keys(t.defs)) {
		server, _, _ := strings.Cut(id, "/")
		out = append(out, Tool{Server: server, Definition: t.defs[id].Definition})
	}
	return out
}

func (r *Registry) tool(name, server, tool string) (tools.OfferedTool, bool) {
	t, unlock := r.current(name)
	defer unlock()
	if t == nil {
		return tools.OfferedTool{}, false
	}
	d, ok := t.defs[server+"/"+tool]
	return d, ok
}

// current is the tenant with its overlay brought up to date, until unlock is called; nil when it
// serves nothing.
func (r *Registry) current(name string) (t *tenant, unlock func()) {
	t, said := r.instances(name)
	if t == nil {
		return nil, func() {}
	}
	h := sha256.New()
	for _, i := range said {
		h.Write(i.sum[:])
	}
	t.mu.Lock()
	if key := [32]byte(h.Sum(nil)); t.overlay == nil || key != t.key {
		t.key = key
		t.rebuild(said, r.reserved)
	}
	return t, t.mu.Unlock
}

// said is what the tenant's processes say now, by their names.
func (r *Registry) instances(name string) (t *tenant, said []*instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t = r.tenants[name]; t == nil {
		return nil, nil
	}
	t.expire(time.Now())
	if len(t.instances) == 0 {
		r.deleteIfEmpty(name, t)
		return nil, nil
	}
	for _, process := range slices.Sorted(maps.Keys(t.instances)) {
		said = append(said, t.instances[process])
	}
	return t, said
}

// understand makes the overlay of what the processes say. It keeps the old one when it comes to the
// same: processes come and go.
func (t *tenant) rebuild(said []*instance, reserved map[string]bool) {
	servers, about, broken := mergeOffers(said, reserved)
	o := &tools.Overlay{Files: map[string][]byte{}, Expose: map[string]bool{}, Broken: broken}
	t.defs = map[string]tools.OfferedTool{}
	for _, server := range slices.Sorted(maps.Keys(servers)) {
		var defs []tools.Definition
		for _, d := range servers[server] {
			defs = append(defs, d.Definition)
			t.defs[server+"/"+d.Name] = d
			if d.Expose {
				o.Expose[server+"/"+d.Name] = true
			}
		}
		p, err := pygen.Generate(pygen.Source{Server: server, About: about[server], Tools: defs})
		if err != nil {
			o.Broken = append(o.Broken, tools.Broken{Path: server, Message: err.Error()})
			continue
		}
		for _, refused := range p.Rejected {
			o.Broken = append(o.Broken, tools.Broken{Path: server + "/" + refused.Tool, Message: refused.Reason})
		}
		for name, data := range p.Files {
			o.Files[p.Dir+"/"+name] = data
		}
	}
	if t.overlay == nil || !equalOverlays(t.overlay, o) {
		t.overlay = o
	}
}

func equalOverlays(a, b *tools.Overlay) bool {
	return maps.EqualFunc(a.Files, b.Files, bytes.Equal) && maps.Equal(a.Expose, b.Expose) && slices.Equal(a.Broken, b.Broken)
}

// merge is what all processes serve, by server and tool, and what they say of the servers. Of two definitions of a
// tool, or texts about a server, that of the process which was started last holds.
func mergeOffers(said []*instance, reserved map[string]bool) (servers map[string]map[string]tools.OfferedTool, about map[string]tools.About, broken []tools.Broken) {
	var offers []tools.Offer
	for _, i := range said {
		var o tools.Offer
		if err := json.Unmarshal(i.data, &o); err != nil {
			broken = append(broken, tools.Broken{Path: "(a registered server)", Message: "what its process says of its tools is not understood: " + text.Printable(err.Error())})
			continue
		}
		if err := tools.CheckOfferedServer(o.Server); err != nil {
			broken = append(broken, tools.Broken{Path: "(a registered server)", Message: err.Error()})
			continue
		}
		if reserved[o.Server] {
			broken = append(broken, tools.Broken{Path: o.Server, Message: fmt.Sprintf("the fleet has a server %q: register these tools under another name", o.Server)})
			continue
		}
		offers = append(offers, o)
	}
	slices.SortStableFunc(offers, func(a, b tools.Offer) int { return a.Started.Compare(b.Started) })
	n := 0
	servers, about = map[string]map[string]tools.OfferedTool{}, map[string]tools.About{}
	for _, o := range offers {
		if o.About != (tools.About{}) {
			about[o.Server] = o.About
		}
		for _, d := range o.Tools {
			list := servers[o.Server]
			if _, known := list[d.Name]; !known {
				n++
			}
			err := d.Check()
			if err == nil && n > tools.MaxOffered {
				err = fmt.Errorf("tool %q: the tenant's processes serve more than %d", d.Name, tools.MaxOffered)
			}
			if err != nil {
				broken = append(broken, tools.Broken{Path: o.Server, Message: err.Error()})
				continue
			}
			if list == nil {
				list = map[string]tools.OfferedTool{}
				servers[o.Server] = list
			}
			list[d.Name] = d
		}
	}
	slices.SortFunc(broken, func(a, b tools.Broken) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return servers, about, slices.Compact(broken)
}
