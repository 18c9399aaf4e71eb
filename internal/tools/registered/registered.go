// Package registered tracks the tools that each tenant's processes offer every few seconds. It generates Python
// modules for these tools, and calls them. Offers are untrusted, and affect only their own tenant. The package does
// not know the queue: it receives offers through Update, and sends calls with a Send. The key type is Registry.
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

// Send sends a call to one of the tenant's processes that serve the tool, and returns the response. If the
// error is ErrNotServed or ErrNotBegun, the call was not made.
type Send func(ctx context.Context, tenant, server, tool string, data []byte) ([]byte, error)

// Errors of a Send.
var (
	ErrNotServed = errors.New("no process serves the tool")
	ErrNotBegun  = errors.New("the process did not begin the call") // another process may
)

const (
	// instanceTTL is how long a process counts as alive after its last offer.
	instanceTTL  = 10 * time.Second
	maxInstances = 64 // per tenant
	maxTenants   = 10_000
)

// Registry holds the offers of all tenants. It is safe for concurrent use.
type Registry struct {
	send     Send
	log      *slog.Logger
	reserved func() []string // names of the fleet's servers; nil for none

	mu      sync.Mutex
	tenants map[string]*tenant
	swept   time.Time // when expireTenants last checked all tenants
}

type tenant struct {
	instances map[string]*instance // by process; guarded by Registry.mu

	mu      sync.Mutex // held while rebuilding, so that one tenant's many tools do not delay the others
	key     [32]byte   // hash of the offers and reserved names from which overlay and defs were built
	overlay *tools.Overlay
	defs    map[string]tools.OfferedTool // by server/tool
}

// instance is a process, with its last offer.
type instance struct {
	data    []byte
	sum     [32]byte
	updated time.Time
}

// New returns an empty registry. reserved lists the fleet's servers, with or without tools in the catalogue, and
// may be nil. Tenants cannot register tools under these names, because their calls go to the fleet's server.
func New(send Send, log *slog.Logger, reserved func() []string) *Registry {
	return &Registry{send: send, log: log, reserved: reserved, tenants: map[string]*tenant{}}
}

// reservedDirs returns the directory names of the fleet's servers, sorted.
func (r *Registry) reservedDirs() []string {
	if r.reserved == nil {
		return nil
	}
	var dirs []string
	for _, server := range r.reserved() {
		dirs = append(dirs, pygen.Identifier(server))
	}
	slices.Sort(dirs)
	return dirs
}

// Update stores an offer of a process. Empty data means that the process has ended. The offer is parsed when the
// tenant's tools are next requested. Update drops the offer if there are too many tenants or processes.
func (r *Registry) Update(tenantName, process string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	t := r.tenants[tenantName]
	if len(data) == 0 {
		if t != nil {
			delete(t.instances, process)
			r.deleteIfEmpty(tenantName, t)
		}
		return
	}
	if t == nil {
		if len(r.tenants) >= maxTenants {
			r.expireTenants(now)
		}
		if len(r.tenants) >= maxTenants {
			return
		}
		t = &tenant{instances: map[string]*instance{}}
		r.tenants[tenantName] = t
	}
	known := t.instances[process]
	switch {
	case known != nil && bytes.Equal(known.data, data):
		known.updated = now
	case known == nil && len(t.instances) >= maxInstances && !t.expire(now):
		r.log.Warn("rejected process registration: too many processes", "tenant", tenantName, "limit", maxInstances)
	default:
		t.instances[process] = &instance{data: bytes.Clone(data), sum: sha256.Sum256(data), updated: now}
	}
}

// expire removes the processes that stopped sending offers, and reports whether there were any.
func (t *tenant) expire(now time.Time) bool {
	before := len(t.instances)
	maps.DeleteFunc(t.instances, func(_ string, i *instance) bool { return now.Sub(i.updated) > instanceTTL })
	return len(t.instances) < before
}

// expireTenants removes the tenants whose processes stopped sending offers. If there are still too many tenants, it
// logs that the offers of others are dropped. It does this at most once per instanceTTL, because it checks all tenants.
func (r *Registry) expireTenants(now time.Time) {
	if now.Sub(r.swept) < instanceTTL {
		return
	}
	r.swept = now
	for name, t := range r.tenants {
		t.expire(now)
		r.deleteIfEmpty(name, t)
	}
	if len(r.tenants) >= maxTenants {
		r.log.Warn("rejected process registrations: too many tenants have registered tools", "limit", maxTenants)
	}
}

func (r *Registry) deleteIfEmpty(tenantName string, t *tenant) {
	if len(t.instances) == 0 {
		delete(r.tenants, tenantName)
	}
}

// Overlay returns the tools that the tenant's processes serve, or nil if they serve none. It returns the same
// value until the tools change.
func (r *Registry) Overlay(tenantName string) *tools.Overlay {
	overlay, _ := r.current(tenantName)
	return overlay
}

// current returns the overlay of the tenant's current offers, and their tools by server/tool. Both are
// nil if the tenant serves no tools, and both are immutable.
func (r *Registry) current(tenantName string) (*tools.Overlay, map[string]tools.OfferedTool) {
	t, instances := r.instances(tenantName)
	if t == nil {
		return nil, nil
	}
	h := sha256.New()
	for _, i := range instances {
		h.Write(i.sum[:])
	}
	reserved := r.reservedDirs()
	h.Write([]byte(strings.Join(reserved, "/")))
	t.mu.Lock()
	defer t.mu.Unlock()
	if key := [32]byte(h.Sum(nil)); t.overlay == nil || key != t.key {
		t.key = key
		t.rebuild(instances, reserved)
	}
	return t.overlay, t.defs
}

// instances returns the tenant's processes, sorted by name.
func (r *Registry) instances(tenantName string) (t *tenant, out []*instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t = r.tenants[tenantName]; t == nil {
		return nil, nil
	}
	t.expire(time.Now())
	if len(t.instances) == 0 {
		r.deleteIfEmpty(tenantName, t)
		return nil, nil
	}
	for _, process := range slices.Sorted(maps.Keys(t.instances)) {
		out = append(out, t.instances[process])
	}
	return t, out
}

// rebuild builds the overlay from the processes' offers. If the new overlay equals the old one, it keeps the old one,
// because processes often come and go without a change of the tools.
func (t *tenant) rebuild(instances []*instance, reserved []string) {
	servers, about, broken := mergeOffers(instances, reserved)
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
		for _, r := range p.Rejected {
			o.Broken = append(o.Broken, tools.Broken{Path: server + "/" + r.Tool, Message: r.Reason})
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
	return maps.EqualFunc(a.Files, b.Files, bytes.Equal) &&
		maps.Equal(a.Expose, b.Expose) && slices.Equal(a.Broken, b.Broken)
}

// mergeOffers returns the tools that the processes serve, by server and tool, and the descriptions of their
// servers. If definitions or descriptions differ, the process that started last wins. broken lists what was rejected.
func mergeOffers(instances []*instance, reserved []string) (
	servers map[string]map[string]tools.OfferedTool, about map[string]tools.About, broken []tools.Broken,
) {
	reject := func(path, message string) {
		broken = append(broken, tools.Broken{Path: path, Message: message})
	}
	var offers []tools.Offer
	for _, i := range instances {
		var o tools.Offer
		if err := json.Unmarshal(i.data, &o); err != nil {
			reject(unnamed, "a process sent an invalid offer: "+text.Printable(err.Error()))
		} else if err := tools.CheckOfferedServer(o.Server); err != nil {
			reject(unnamed, err.Error())
		} else if slices.Contains(reserved, o.Server) {
			reject(o.Server, tools.ServerTaken(o.Server))
		} else {
			offers = append(offers, o)
		}
	}
	slices.SortStableFunc(offers, func(a, b tools.Offer) int { return a.Started.Compare(b.Started) })
	count := 0
	servers, about = map[string]map[string]tools.OfferedTool{}, map[string]tools.About{}
	for _, o := range offers {
		if o.About != (tools.About{}) {
			about[o.Server] = o.About
		}
		for _, d := range o.Tools {
			_, known := servers[o.Server][d.Name]
			err := d.Check()
			if err == nil && !known && count == tools.MaxOffered {
				err = fmt.Errorf("tool %q: the tenant's processes serve more than %d tools", d.Name, tools.MaxOffered)
			}
			if err != nil {
				reject(o.Server, err.Error())
				continue
			}
			if !known {
				count++
			}
			if servers[o.Server] == nil {
				servers[o.Server] = map[string]tools.OfferedTool{}
			}
			servers[o.Server][d.Name] = d
		}
	}
	slices.SortFunc(broken, func(a, b tools.Broken) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return servers, about, slices.Compact(broken)
}

// unnamed is the Broken.Path of a server without a valid name.
const unnamed = "(a registered server)"
