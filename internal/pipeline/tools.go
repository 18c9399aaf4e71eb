package pipeline

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/toolsearch"
	"github.com/codefleet/codefleet/schemas"
)

// Catalogue is where tasks get their tools; *tools.VersionStore is one.
type Catalogue interface {
	// Current returns the catalogue version for a task of the tenant that begins now, and its tools: the
	// same Listing while nothing changes.
	Current(ctx context.Context, tenant string) (version string, list *tools.Listing, err error)
	// Kept returns the tools of a version that an earlier run of the task used, perhaps on another
	// host. The error is fs.ErrNotExist when the version is gone.
	Kept(ctx context.Context, tenant, version string) (*tools.Listing, error)
}

// Tools are the catalogue and what handles calls. Without a Catalogue tasks have no tools; with one,
// Upstream, Journal and Audit are required.
type Tools struct {
	Catalogue Catalogue
	Index     func(*tools.Listing) *toolsearch.Index // nil: searches by words
	Upstream  broker.Upstream
	Journal   broker.Journal
	Audit     broker.Audit
	Policy    broker.Policy
	Budget    broker.Budget                // of one execution
	Allow     func(tenant string) []string // what a tenant may use, as broker.Task.Allow; nil: everything
	Approval  time.Duration                // wait for a person under the policy approve; 0: such calls are refused
}

// toolset is the tools of one task. The zero value has none.
type toolset struct {
	version   string // of the catalogue
	index     *toolsearch.Index
	allow     []string // as broker.Task.Allow
	available int      // tools that allow permits
	findings  []schemas.Finding
}

// discover returns the tools of the catalogue version that the task's record names.
func (p *Pipeline) discover(ctx context.Context, t task) (s toolset, err error) {
	if p.Tools.Catalogue == nil {
		return s, nil
	}
	tenant := t.ref.Tenant
	var list *tools.Listing
	if s.version = t.job.Record.Catalogue; s.version != "" {
		list, err = p.Tools.Catalogue.Kept(ctx, tenant, s.version)
	}
	if errors.Is(err, fs.ErrNotExist) { // it was made from files of a host that is gone
		s.findings = []schemas.Finding{warning("catalogue",
			"the task uses the current tools: catalogue version "+s.version+", with which it began, no longer exists")}
		s.version = ""
	}
	if s.version == "" {
		s.version, list, err = p.Tools.Catalogue.Current(ctx, tenant)
	}
	if err != nil {
		return s, orCause(ctx, err)
	}
	s.index, s.allow = p.Tools.Index(list), []string{"*"}
	if p.Tools.Allow != nil {
		s.allow = p.Tools.Allow(tenant)
	}
	if choice := t.job.Task.Tools; choice != nil && choice.Allow != nil {
		s.allow = broker.Narrow(choice.Allow, s.allow)
	}
	s.available = s.index.Count(s.allow)
	return s, nil
}

// mutates reports whether a call may have changed something.
func (s toolset) mutates(e broker.AuditRecord) bool {
	if s.index == nil {
		return false
	}
	tool, err := s.index.Listing.Lookup(e.Server, e.Tool)
	return err == nil && tool.Annotations.Mutates()
}

func warning(rule, message string) schemas.Finding {
	return schemas.Finding{Rule: rule, Level: "warning", Message: message}
}
