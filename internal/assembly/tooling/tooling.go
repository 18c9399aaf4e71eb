// Package tooling constructs the toolbox, the upstreams and the limits of tool calls from settings.
package tooling

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/assembly/models"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/toolbox"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/tools/builtin"
	"github.com/codefleet/codefleet/internal/tools/mcp"
)

// Toolbox returns the toolbox. If the settings name a directory of tools, or no object store, the catalogue is
// local. Otherwise it is the one published in bucket, and until one is published, the local one. Without an object
// store, tenants have no skills of their own.
func Toolbox(c *config.Config, bucket objects.Objects, log *slog.Logger) (*toolbox.Toolbox, error) {
	skillsBucket := bucket
	if c.S3.Endpoint == "" {
		skillsBucket = nil
	}
	return newToolbox(c, bucket, skillsBucket, log)
}

func newToolbox(
	c *config.Config, bucket, skillsBucket objects.Objects, log *slog.Logger,
) (*toolbox.Toolbox, error) {
	local, err := Catalogue(c)
	if err != nil {
		return nil, err
	}
	embeddings, err := models.Embeddings(c, log)
	if err != nil {
		return nil, err
	}
	o := toolbox.Options{
		Source: local, Reserved: reservedNames(c, log), Allow: allowOf(c), Embeddings: embeddings, Log: log,
		Skills: skills.NewLibrary(skills.Options{Bucket: skillsBucket, Dir: c.Execution.SkillsDir, Log: log}),
	}
	if usesPublished(c) {
		o.Source = toolbox.PublishedOr(tools.OpenPublished(bucket), local)
	}
	return toolbox.New(o), nil
}

// usesPublished reports whether the catalogue is the published one, once there is one.
func usesPublished(c *config.Config) bool { return c.Execution.ServersDir == "" && c.S3.Endpoint != "" }

// ServersDir returns the directory of tool modules. Enabled servers of the settings replace built-in ones of the same
// names there, too.
func ServersDir(c *config.Config) (string, error) {
	return toolbox.ServersDir(c.Execution.ServersDir, c.Data, enabledNames(c)...)
}

// Catalogue opens the catalogue in ServersDir.
func Catalogue(c *config.Config) (*tools.Catalogue, error) {
	return toolbox.OpenCatalogue(c.Execution.ServersDir, c.Data, enabledNames(c)...)
}

// Worker is what a worker needs for tools. The caller closes it.
type Worker struct {
	Toolbox   *toolbox.Toolbox
	Parts     pipeline.Tools
	Mount     executor.Mount // the catalogue, in every box
	upstreams *mcp.Manager
	unobserve func()
	stop      context.CancelFunc // stops requests to the bucket for announced tools
}

// ForWorker opens a worker's tools. The worker keeps catalogue versions in dir; catalogues are published in
// bucket.
func ForWorker(c *config.Config, dir string, bucket objects.Objects, t *telemetry.Telemetry) (w *Worker, err error) {
	ctx, stop := context.WithCancel(context.Background())
	w = &Worker{unobserve: func() {}, stop: stop}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	// The bucket also has the tenants' skills. A worker always has a bucket, whose address may not be known yet.
	if w.Toolbox, err = newToolbox(c, bucket, bucket, t.Logger); err != nil {
		return nil, err
	}
	versions, err := tools.OpenVersionStore(tools.VersionStoreOptions{
		Source: w.Toolbox.Source(), Dir: dir, Overlay: w.Toolbox.Overlay, Objects: bucket, Log: t.Logger,
	})
	if err != nil {
		return nil, err
	}
	w.Mount = executor.Mount{Source: versions.Dir(), Target: executor.DefaultGuest().Catalogue, ReadOnly: true}
	announced, err := addAnnounced(ctx, c, bucket, t.Logger)
	if err != nil {
		return nil, err
	}
	if w.upstreams, err = Upstreams(c, mcp.Options{Log: t.Logger, OnAnnounced: announced}); err != nil {
		return nil, err
	}
	if w.unobserve, err = w.upstreams.Observe(t.MeterProvider.Meter("codefleet/tools")); err != nil {
		w.unobserve = func() {}
		return nil, err
	}
	w.Parts = pipeline.Tools{
		Catalogue: versions, Index: w.Toolbox.Index, Upstream: w.Toolbox.Upstream(w.upstreams),
		Policy: policy(c), Budget: callBudget(c), Allow: w.Toolbox.Allow, Approval: c.Tools.ApprovalTimeout,
	}
	return w, nil
}

// addAnnounced returns a function that adds tools to the local catalogue: those that a server announces while it runs.
// It adds none if the worker uses the published catalogue. It asks the bucket about that until ctx ends.
func addAnnounced(
	ctx context.Context, c *config.Config, bucket objects.Objects, log *slog.Logger,
) (func(server string, defs []tools.Definition), error) {
	dir, err := ServersDir(c)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	return func(server string, defs []tools.Definition) {
		mu.Lock()
		defer mu.Unlock()
		if usesPublished(c) {
			asking, stop := context.WithTimeout(ctx, bucketTimeout)
			defer stop()
			_, err := tools.Current(asking, bucket)
			if err == nil || ctx.Err() != nil {
				return
			}
			if !errors.Is(err, fs.ErrNotExist) { // the local catalogue may be in use, and an addition does no harm
				log.WarnContext(ctx, "adding announced tools although a published catalogue may be in use",
					"server", server, "error", err)
			}
		}
		added, err := toolbox.AddAnnounced(dir, server, defs)
		if err != nil {
			log.WarnContext(ctx, "announced tools not added", "server", server, "error", err)
		} else if len(added) > 0 {
			log.InfoContext(ctx, "announced tools added: approve them with codefleet tools approve", "server", server,
				"tools", len(added))
		}
	}, nil
}

// Close stops the upstreams and closes the toolbox.
func (w *Worker) Close() {
	w.stop()
	w.unobserve()
	if w.upstreams != nil {
		w.upstreams.Close()
	}
	if w.Toolbox != nil {
		w.Toolbox.Close()
	}
}

// policy returns the tool policy.
func policy(c *config.Config) broker.Policy {
	p := broker.Policy{Destructive: broker.Decision(c.Tools.Destructive), Tools: map[string]broker.Decision{}}
	for id, d := range c.Tools.Policy {
		p.Tools[id] = broker.Decision(d)
	}
	return p
}

// callBudget returns the budget of one execution's calls.
func callBudget(c *config.Config) broker.Budget {
	t := c.Tools
	return broker.Budget{
		Calls: t.MaxCalls, Bytes: int64(t.MaxMB) << 20, Concurrent: t.MaxConcurrent,
		PerCall: t.CallTimeout, Total: t.TotalTime,
	}
}

// Upstreams returns the MCP servers behind the tools: the configured ones, and the built-in ones, which run in
// this process. A configured server replaces the built-in one with the same name. The first call of a server
// starts it. When the settings' files change, the new servers and secrets are used without a restart.
func Upstreams(c *config.Config, o mcp.Options) (*mcp.Manager, error) {
	builtins, err := builtinServers(c)
	if err != nil {
		return nil, err
	}
	reloader := config.NewReloader(c)
	o.Reload = func() ([]mcp.Server, error) {
		changed, err := reloader.Changed()
		if err != nil || changed == nil {
			return nil, err
		}
		return servers(changed, builtins), nil
	}
	return mcp.NewManager(servers(c, builtins), o)
}

// servers returns the configured servers, and the built-in ones that they do not replace.
func servers(c *config.Config, builtins []mcp.Server) []mcp.Server {
	var list []mcp.Server
	for _, s := range enabled(c) {
		list = append(list, mcp.Server{
			Name: s.Name, Command: s.Command, Args: s.Args, Env: reveal(s.Env), User: s.User, Dir: s.Cwd,
			URL: s.URL, SSE: s.ConnectionType == "sse", Headers: reveal(s.Headers), Scope: mcp.Scope(s.Scope),
			Limits: mcp.Limits{CallTimeout: s.Timeout, ConnectTimeout: s.StartTimeout, Concurrency: s.Concurrency},
		})
	}
	for _, b := range builtins {
		if !slices.ContainsFunc(list, func(s mcp.Server) bool { return s.Name == b.Name }) {
			list = append(list, b)
		}
	}
	return list
}

func builtinServers(c *config.Config) ([]mcp.Server, error) {
	var list []mcp.Server
	var o builtin.Options
	if c.Weather.Provider == config.WeatherOpenMeteo {
		o.OpenMeteo = &builtin.OpenMeteo{Client: publicClient()}
	}
	for _, name := range builtin.Names() {
		server, err := builtin.New(name, o)
		if err != nil {
			return nil, err
		}
		list = append(list, mcp.Server{
			Name: name, InProcess: server, Scope: mcp.Shared, // they keep nothing of their callers
			Limits: mcp.Limits{Concurrency: builtinConcurrency},
		})
	}
	return list, nil
}

// publicClient returns a client for the services that built-in tools call. It connects only to public addresses, and
// follows no redirects.
func publicClient() *http.Client {
	return &http.Client{
		Timeout: publicTimeout,
		Transport: &http.Transport{
			DialContext: egress.Public{}.DialContext, TLSHandshakeTimeout: publicTimeout,
			MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: time.Minute, MaxConnsPerHost: 8,
			ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// enabled returns the configured servers that are not disabled.
func enabled(c *config.Config) []config.MCPServer {
	return slices.DeleteFunc(slices.Clone(c.MCPServers), func(s config.MCPServer) bool {
		return s.Enabled != nil && !*s.Enabled
	})
}

func enabledNames(c *config.Config) (names []string) {
	for _, s := range enabled(c) {
		names = append(names, s.Name)
	}
	return names
}

// reveal returns the plain text of secrets.
func reveal(secrets map[string]config.Secret) map[string]string {
	out := make(map[string]string, len(secrets))
	for name, value := range secrets {
		out[name] = string(value)
	}
	return out
}

// reservedNames returns a function that returns the names of the servers that tenants' processes cannot register. These
// are the servers of Upstreams, also after changes of the settings' files.
func reservedNames(c *config.Config, log *slog.Logger) func() []string {
	reloader := config.NewReloader(c)
	var mu sync.Mutex
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		switch changed, err := reloader.Changed(); {
		case err != nil:
			log.Warn("changed settings of tool servers not applied", "error", err)
		case changed != nil:
			c = changed
		}
		return append(builtin.Names(), enabledNames(c)...)
	}
}

const (
	builtinConcurrency = 64               // calls of a built-in server that run at once
	publicTimeout      = 10 * time.Second // time limit of one request
	bucketTimeout      = 10 * time.Second // time limit of the question whether a catalogue is published
)

// allowOf returns a function that returns a tenant's allow-list, and whether the settings name the tenant. A tenant
// that was created at run time, or whose settings list no tools, may call all tools.
func allowOf(c *config.Config) toolbox.AllowList {
	return func(tenant string) (list []string, inSettings bool) {
		t, inSettings := c.Tenants[tenant]
		if len(t.Tools) == 0 {
			return []string{"*"}, inSettings
		}
		return t.Tools, inSettings
	}
}
