package pipeline

import (
	"context"
	"time"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/toolsearch"
)

// Catalogue is where tasks have their tools from; *tools.VersionStore is one.
type Catalogue interface {
	// Current returns the version of the tenant's catalogue that a task begun now pins, and its tools:
	// the same Snapshot while nothing changes.
	Current(ctx context.Context, tenant string) (version string, snap *tools.Listing, err error)
	// Pinned returns the tools of a version that an earlier run of the task pinned, perhaps on another
	// host; fs.ErrNotExist when it is not to be had any more.
	Pinned(ctx context.Context, tenant, version string) (*tools.Listing, error)
}

// Tools are the catalogue, and what stands behind its tools. Without a Catalogue tasks have no tools;
// with one, Upstream, Journal and Audit are required.
type Tools struct {
	Catalogue Catalogue
	Upstream  broker.Upstream
	Journal   broker.Journal
	Audit     broker.Audit
	Policy    broker.Policy
	Budget    broker.Budget                // of one run
	Allow     func(tenant string) []string // what a tenant may use, as broker.Task.Allow; nil: everything
	Approval  time.Duration                // how long somebody is asked under the policy approve; 0: such calls are refused
}

// toolset is the version of the catalogue that a task uses.
type toolset struct {
	version string
	*toolsearch.Index
}
