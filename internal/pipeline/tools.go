package pipeline

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/toolsearch"
	"github.com/codefleet/codefleet/schemas"
)

// Catalogue is where tasks get their tools. *tools.VersionStore implements it.
type Catalogue interface {
	// Current returns the catalogue version for a tenant's task that begins now. It returns the same Listing while
	// nothing changes. Its directory exists until release is called, which is never nil.
	Current(ctx context.Context, tenant string) (v tools.Installed, release func(), err error)
	// Kept returns a version that an earlier run of the task used, perhaps on another host. The error is
	// fs.ErrNotExist if the version no longer exists. release is like that of Current.
	Kept(ctx context.Context, tenant, version string) (v tools.Installed, release func(), err error)
}

// Tools are the catalogue and what handles calls. Without a Catalogue, tasks have no tools. With one,
// Upstream, Journal and Audit are required.
type Tools struct {
	Catalogue Catalogue
	Index     func(*tools.Listing) *toolsearch.Index // the default searches by words
	Upstream  broker.Upstream
	Journal   broker.Journal
	Audit     broker.Audit
	Policy    broker.Policy
	Budget    broker.Budget // what one execution may use
	// Allow returns a tenant's allow-list for broker.Task.Allow. If Allow is nil, tenants may use every tool.
	Allow    func(ctx context.Context, tenant string) ([]string, error)
	Approval time.Duration       // how long a call waits for approval; 0 refuses calls that need it
	History  *toolsearch.History // records which tools tasks use; may be nil
}

// toolset is the tools of one task. The zero value has none.
type toolset struct {
	dir       string // directory of the catalogue version
	index     *toolsearch.Index
	allow     []string // for broker.Task.Allow
	available int      // number of tools that allow permits
	findings  []schemas.Finding
}

// discover returns the tools of the catalogue version that the task's record names. If the record names none, or that
// version no longer exists, it returns the current tools. The directory of the version exists until release is called,
// which is never nil.
func (p *Pipeline) discover(ctx context.Context, t task) (s toolset, release func(), err error) {
	release = func() {}
	if p.Tools.Catalogue == nil {
		return s, release, nil
	}
	tenant := t.ref.Tenant
	var v tools.Installed
	kept := t.job.Record.Catalogue
	if kept != "" {
		v, release, err = p.Tools.Catalogue.Kept(ctx, tenant, kept)
	}
	if errors.Is(err, fs.ErrNotExist) { // the version existed only on a host that is lost
		s.findings = []schemas.Finding{warning("catalogue",
			"the task uses the current tools: catalogue version "+kept+", with which it began, no longer exists")}
		kept = ""
	}
	if kept == "" {
		v, release, err = p.Tools.Catalogue.Current(ctx, tenant)
	}
	if err != nil {
		return s, release, withCause(ctx, err)
	}
	s.dir, s.index, s.allow = v.Dir, p.Tools.Index(v.Listing), []string{"*"}
	if p.Tools.Allow != nil {
		if s.allow, err = p.Tools.Allow(ctx, tenant); err != nil {
			return toolset{}, release, withCause(ctx, err)
		}
	}
	if choice := t.job.Task.Tools; choice != nil && choice.Allow != nil {
		s.allow = broker.Narrow(choice.Allow, s.allow)
		if missing := s.unmatched(choice.Allow); len(missing) > 0 {
			s.findings = append(s.findings, warning("tools",
				"no tool that the task may use matches "+text.Truncate(strings.Join(missing, ", "), maxNamed)))
		}
	}
	s.available = s.index.Count(s.allow)
	return s, release, nil
}

// maxNamed bounds the patterns or files that a finding names, in bytes.
const maxNamed = 500

// unmatched returns the patterns of a task's tools.allow that match no tool which s.allow permits.
func (s toolset) unmatched(patterns []string) []string {
	matched := map[string]bool{"*": true} // a tenant may have no tools
	for _, t := range s.index.Permitted(s.allow) {
		matched[t.Server+"/*"], matched[t.ID()] = true, true
	}
	return slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return matched[p] })
}

// names returns the names of a tool that a program calls, in the form server/tool.
func (s toolset) names(server, name string) []string {
	if s.index == nil {
		return nil
	}
	tool, err := s.index.Listing.Lookup(server, name)
	if err != nil {
		return []string{server + "/" + name} // the broker refuses the call
	}
	return tool.Names()
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
