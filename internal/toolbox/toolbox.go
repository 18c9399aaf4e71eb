// Package toolbox holds the tools of a fleet in one process: a catalogue, which is published or read from a local
// directory, and the tools that tenants' processes register. It filters them for each tenant, searches them, and
// routes calls. The key type is Toolbox.
package toolbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/tools/mcp"
	"github.com/codefleet/codefleet/internal/tools/registered"
	"github.com/codefleet/codefleet/internal/toolsearch"
)

// Options are the parts of a Toolbox. Source, Allow and Log are required.
type Options struct {
	Source     tools.Source
	Reserved   func() []string // names of servers that tenants' processes cannot register
	Allow      AllowList
	Embeddings *toolsearch.Embeddings // for searches; nil searches by words alone
	Skills     *skills.Library        // nil means no skills
	Log        *slog.Logger
}

// AllowList returns the allow-list of a tenant, for broker.Allowed, and whether the settings name the tenant. For a
// tenant that they do not name, it returns the list of the tenants that operators create at run time.
type AllowList func(tenant string) (list []string, inSettings bool)

// Toolbox provides the tools for the HTTP interface, as ingest.Tools, and for a worker. Call Close when it is no longer
// needed. It is safe for concurrent use.
type Toolbox struct {
	o       Options
	search  *toolsearch.Search
	stop    context.CancelFunc // stops the goroutines in running
	running sync.WaitGroup

	mu         sync.Mutex
	queue      *jobs.Client             // nil before Join
	registered *registered.Registry     // nil before Join
	history    *toolsearch.History      // nil before Join
	unwatch    func()                   // stops receiving offers of tools and changes of skills
	overlays   map[string]mergedOverlay // by tenant, for tenants with skills
	// views are filtered catalogues. The key is the allow-list, or the tenant if it has registered tools or skills.
	// Tenants that see the fleet's whole catalogue and nothing else have no view.
	views  map[string]view
	logged time.Time // when base last logged an error of the source
}

const logInterval = time.Minute

// view is the catalogue that a tenant sees, and what it was built from.
type view struct {
	base, listing *tools.Listing
	overlay       *tools.Overlay
}

// New returns a toolbox. It runs the embeddings until Close.
func New(o Options) *Toolbox {
	b := &Toolbox{
		o: o, search: toolsearch.New(o.Embeddings), views: map[string]view{}, overlays: map[string]mergedOverlay{},
		unwatch: func() {},
	}
	var ctx context.Context
	ctx, b.stop = context.WithCancel(context.Background())
	b.running.Go(func() { o.Embeddings.Run(ctx) })
	return b
}

// Source returns the catalogue without registered tools.
func (b *Toolbox) Source() tools.Source { return b.o.Source }

// Skills returns the skills of all tenants, or nil if the fleet has no skills.
func (b *Toolbox) Skills() *skills.Library { return b.o.Skills }

// Index returns the index of a catalogue. All searches of the catalogue share it.
func (b *Toolbox) Index(listing *tools.Listing) *toolsearch.Index { return b.search.Index(listing) }

// Join connects the toolbox to the queue. From then on it knows the tenants that operators have created, and has the
// tools that tenants' processes register, and the history of tenants' tasks.
func (b *Toolbox) Join(queue *jobs.Client) error {
	r := registered.New(sendCalls(queue), b.o.Log, b.o.Reserved)
	unwatch, err := queue.WatchOffers(r.Update)
	if err != nil {
		return err
	}
	if b.o.Skills != nil {
		unwatchOffers := unwatch
		unwatchSkills, err := queue.WatchSkills(b.o.Skills.Changed, b.o.Skills.Disconnected)
		if err != nil {
			unwatchOffers()
			return err
		}
		unwatch = func() { unwatchOffers(); unwatchSkills() }
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue, b.registered, b.unwatch, b.history = queue, r, unwatch, toolsearch.NewHistory(queue, b.o.Log)
	return nil
}

// Close stops what New and Join started, and closes the embeddings.
func (b *Toolbox) Close() {
	b.stop()
	b.running.Wait()
	_ = b.o.Embeddings.Close() // a vector that is not saved costs one more request
	b.o.Skills.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unwatch()
}

// registry returns the registry of registered tools. It is nil before Join.
func (b *Toolbox) registry() *registered.Registry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.registered
}

// mergedOverlay is a tenant's overlay with registered tools and skills, and what it was built from.
type mergedOverlay struct {
	registered *tools.Overlay
	skills     *skills.Set
	overlay    *tools.Overlay
}

// Overlay returns the tools that the tenant's processes have registered, and the skills that its programs can import,
// or nil if there are none. It returns the same value until something changes.
func (b *Toolbox) Overlay(ctx context.Context, tenant string) (*tools.Overlay, error) {
	m := mergedOverlay{}
	if r := b.registry(); r != nil {
		m.registered = r.Overlay(tenant)
	}
	var err error
	if m.skills, err = b.o.Skills.Of(ctx, tenant); err != nil {
		return nil, err
	}
	if m.skills == nil {
		return m.registered, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.overlays[tenant]; known.registered == m.registered && known.skills == m.skills {
		return known.overlay, nil
	}
	m.overlay = &tools.Overlay{}
	if m.registered != nil {
		*m.overlay = *m.registered
	}
	m.overlay.SkillFiles, m.overlay.Skills = m.skills.Overlay()
	b.overlays[tenant] = m
	return m.overlay, nil
}

// Allow returns a tenant's allow-list. A tenant that the settings do not name and no operator has created may
// use no tool.
func (b *Toolbox) Allow(ctx context.Context, tenant string) ([]string, error) {
	list, inSettings := b.o.Allow(tenant)
	if inSettings {
		return list, nil
	}
	b.mu.Lock()
	queue := b.queue
	b.mu.Unlock()
	if queue == nil {
		return nil, nil
	}
	if created, err := queue.IsCreated(ctx, tenant); err != nil || !created {
		return nil, err
	}
	return list, nil
}

// Read returns the tools that the tenant may call. It returns the same Listing until something changes. If the source
// fails but still has an earlier catalogue, Read uses that, and logs the error.
func (b *Toolbox) Read(ctx context.Context, tenant string) (*tools.Listing, error) {
	base, err := b.base(ctx)
	if err != nil {
		return nil, err
	}
	overlay, err := b.Overlay(ctx, tenant)
	if err != nil {
		return nil, err
	}
	allow, err := b.Allow(ctx, tenant)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := tenant
	if overlay == nil {
		delete(b.views, tenant)
		if slices.Contains(allow, "*") {
			return base, nil
		}
		key = "\x00" + strings.Join(allow, "\x00") // tenants with the same list share a Listing and its index
	}
	v := b.views[key]
	if v.base != base || v.overlay != overlay {
		listing := base
		if overlay != nil {
			if listing, _, err = tools.Extend(base, overlay); err != nil {
				return nil, err
			}
		}
		listing = listing.Filter(func(server, tool string) bool { return broker.Allowed(allow, server, tool) })
		v = view{base: base, overlay: overlay, listing: listing}
		b.views[key] = v
	}
	return v.listing, nil
}

// base returns the source's catalogue. If the source fails but still has an earlier one, base returns that, and logs
// the error at most once per logInterval.
func (b *Toolbox) base(ctx context.Context) (*tools.Listing, error) {
	listing, err := b.o.Source.Read(ctx)
	if listing == nil {
		return nil, err
	}
	if err == nil || errors.Is(ctx.Err(), context.Canceled) { // a caller that leaves is not a failure of the source
		return listing, nil
	}
	b.mu.Lock()
	due := time.Since(b.logged) >= logInterval
	if due {
		b.logged = time.Now()
	}
	b.mu.Unlock()
	if due {
		b.o.Log.WarnContext(ctx, "read of catalogue failed; last version kept", "error", err)
	}
	return listing, nil
}

// All returns the fleet's tools and those that the tenant's processes have registered, also if the tenant may not call
// them.
func (b *Toolbox) All(ctx context.Context, tenant string) (*tools.Listing, error) {
	base, err := b.base(ctx)
	if err != nil {
		return nil, err
	}
	overlay, err := b.Overlay(ctx, tenant)
	if err != nil || overlay == nil {
		return base, err
	}
	listing, _, err := tools.Extend(base, overlay)
	return listing, err
}

// Search finds tools that the tenant may call. After Join it uses the history of the tenant's tasks.
func (b *Toolbox) Search(ctx context.Context, tenant string, r selection.Request) (selection.Response, error) {
	listing, err := b.Read(ctx, tenant)
	if err != nil {
		return selection.Response{}, err
	}
	b.mu.Lock()
	history := b.history
	b.mu.Unlock()
	if history != nil {
		r.History = history.Past(ctx, tenant)
	}
	return b.search.Index(listing).Select(ctx, r)
}

// Upstream returns a function that makes a call. If the call names one of the fleet's MCP servers, the function sends
// it to that server, and otherwise to the tenant's processes.
func (b *Toolbox) Upstream(servers *mcp.Manager) broker.Upstream {
	return func(ctx context.Context, r tools.Request) (tools.Result, error) {
		registry := b.registry()
		if registry == nil || servers.Has(ctx, r.Server) {
			return servers.Call(ctx, r)
		}
		return registry.Call(ctx, r)
	}
}

// notBegunError is a registered.ErrNotBegun with the text of an error of the queue.
type notBegunError struct{ error }

func (e *notBegunError) Unwrap() []error { return []error{registered.ErrNotBegun, e.error} }

// sendCalls returns a function that sends calls of registered tools over the queue's connection.
func sendCalls(queue *jobs.Client) registered.Send {
	return func(ctx context.Context, tenant, server, tool string, data []byte) ([]byte, error) {
		response, err := queue.CallTool(ctx, tenant, jobs.ToolName{Server: server, Tool: tool}, data)
		switch {
		case errors.Is(err, jobs.ErrNoResponders):
			err = fmt.Errorf("%w: %w", registered.ErrNotServed, err)
		case errors.Is(err, jobs.ErrToolNotBegun):
			err = &notBegunError{err}
		}
		return response, err
	}
}
