package assembly

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/tools/mcp"
	"github.com/codefleet/codefleet/internal/tools/registered"
	"github.com/codefleet/codefleet/internal/worker"
)

// Toolbox is the tools as a process of the fleet knows them: the catalogue, and what the processes of
// tenants register. It is ingest.Tools. It is safe for concurrent use; Close it.
type Toolbox struct {
	Source  tools.Source
	Objects objects.Objects // the fleet's bucket

	log    *slog.Logger
	fleets []string                     // servers that are the fleet's own
	allow  func(tenant string) []string // what a tenant may call
	search *pipeline.Search
	embed  func() // stops the embeddings of search

	mu         sync.Mutex
	registered *registered.Registry // nil before Join
	history    pipeline.History     // nil before Join
	unhear     func()
	views      map[string]view // of tenants that do not see all: by allow-list, or by tenant with tools of its own
}

// view is the catalogue that a tenant sees, and what it was made of.
type view struct {
	base, snap *tools.Snapshot
	overlay    *tools.Overlay
}

// OpenToolbox opens the tools of the settings. A directory that the settings name (or a fleet in one
// process) is the catalogue; else what was published is, and until something was, the tools that come
// with the program are.
func OpenToolbox(c *config.Config, log *slog.Logger) (*Toolbox, error) {
	local, err := Catalogue(c)
	if err != nil {
		return nil, err
	}
	b := &Toolbox{
		Source: local, Objects: openObjects(c), log: log, fleets: upstreamNames(c), allow: toolsOf(c), search: pipeline.NewSearch(nil),
		views: map[string]view{}, unhear: func() {}, embed: func() {},
	}
	if c.Execution.ServersDir == "" && c.S3.Endpoint != "" {
		b.Source = &publishedFirst{tools.OpenPublished(b.Objects), local}
	}
	return b, nil
}

// Join begins to listen for the tools that processes of tenants register, and to read what tenants' tasks used. Before
// that there is neither.
func (b *Toolbox) Join(queue *jobs.Client) error {
	r := registered.New(sendCalls(queue), b.log, b.fleets...)
	stop, err := queue.WatchOffers(r.Heard)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.registered, b.unhear, b.history = r, stop, worker.NewHistory(queue, b.log)
	return nil
}

// Joined is connect, and Join with the queue that it returns.
func (b *Toolbox) Joined(connect func(context.Context) (*jobs.Client, error)) func(context.Context) (*jobs.Client, error) {
	return func(ctx context.Context) (*jobs.Client, error) {
		queue, err := connect(ctx)
		if err == nil {
			err = b.Join(queue)
		}
		return queue, err
	}
}

// Embed lets Search use the embeddings of the settings, as tasks do. Call it before the first Search.
func (b *Toolbox) Embed(c *config.Config) error {
	embeddings, vectors, err := Embeddings(c, b.log)
	if err != nil {
		return err
	}
	b.search = pipeline.NewSearch(embeddings)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { embeddings.Run(ctx) })
	b.embed = func() {
		stop()
		running.Wait()
		_ = vectors.Close() // what is lost costs one more request
	}
	return nil
}

// Close stops to listen.
func (b *Toolbox) Close() {
	b.embed()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unhear()
}

// Registered are the tools that processes of tenants serve; nil before Join.
func (b *Toolbox) Registered() *registered.Registry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.registered
}

// Overlay is what the tenant's processes have registered; nil when it is nothing.
func (b *Toolbox) Overlay(tenant string) *tools.Overlay {
	r := b.Registered()
	if r == nil {
		return nil
	}
	return r.Overlay(tenant)
}

// Read returns the catalogue as the tenant sees it now, with the tools that it may call and no others: the same
// Snapshot until something changes.
func (b *Toolbox) Read(ctx context.Context, tenant string) (*tools.Snapshot, error) {
	base, err := b.Source.Read(ctx)
	if base == nil {
		return nil, err
	}
	overlay, allow := b.Overlay(tenant), b.allow(tenant)
	b.mu.Lock()
	defer b.mu.Unlock()
	key := tenant
	if overlay == nil {
		delete(b.views, tenant)
		if slices.Contains(allow, "*") {
			return base, nil
		}
		key = "\x00" + strings.Join(allow, "\x00") // tenants with the same list share what they see, and its index
	}
	v := b.views[key]
	if v.base != base || v.overlay != overlay {
		snap := base
		if overlay != nil {
			if snap, _, err = tools.Extend(base, overlay); err != nil {
				return nil, err
			}
		}
		snap = snap.Narrow(func(server, tool string) bool { return broker.Allowed(allow, server, tool) })
		v = view{base: base, overlay: overlay, snap: snap}
		b.views[key] = v
	}
	return v.snap, nil
}

// Search finds tools of the tenant's catalogue as its tasks do, with what they used before.
func (b *Toolbox) Search(ctx context.Context, tenant string, r selection.Request) (selection.Response, error) {
	snap, err := b.Read(ctx, tenant)
	if err != nil {
		return selection.Response{}, err
	}
	b.mu.Lock()
	history := b.history
	b.mu.Unlock()
	if history != nil {
		r.History = history.Past(ctx, tenant)
	}
	return b.search.Select(ctx, snap, r)
}

// Upstream calls the MCP servers of the fleet, and for every other server the tenant's processes.
func (b *Toolbox) Upstream(servers *mcp.Manager) broker.Upstream {
	known := servers.Servers()
	return func(ctx context.Context, r tools.Request) (tools.Result, error) {
		own := b.Registered()
		if own == nil || slices.Contains(known, r.Server) {
			return servers.Call(ctx, r)
		}
		return own.Call(ctx, r)
	}
}

// sendCalls carries calls of registered tools over the queue's connection.
func sendCalls(queue *jobs.Client) registered.Send {
	return func(ctx context.Context, tenant, server, tool string, data []byte) ([]byte, error) {
		answer, err := queue.CallTool(ctx, tenant, jobs.ToolName{Server: server, Tool: tool}, data)
		switch {
		case errors.Is(err, jobs.ErrNoResponders):
			err = fmt.Errorf("%w: %w", registered.ErrNobody, err)
		case errors.Is(err, jobs.ErrToolDraining):
			err = fmt.Errorf("%w: %w", registered.ErrAgain, err)
		}
		return answer, err
	}
}

// publishedFirst is what was published, and a directory until something was.
type publishedFirst struct {
	published *tools.Published
	local     *tools.Catalogue
}

func (p *publishedFirst) Read(ctx context.Context) (*tools.Snapshot, error) {
	snap, err := p.published.Read(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return p.local.Read(ctx)
	}
	return snap, err
}

func (p *publishedFirst) Place(ctx context.Context, dir string) (tools.Version, *tools.Snapshot, error) {
	v, snap, err := p.published.Place(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return p.local.Place(ctx, dir)
	}
	return v, snap, err
}
