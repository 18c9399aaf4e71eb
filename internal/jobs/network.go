package jobs

import (
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/errcode"
)

// network checks the hosts that the task asks for against what its tenant may reach: each entry lies
// within one of the tenant's, or the task is refused. So what the task names is what it may reach.
func (o *order) network(p TenantPolicy) error {
	if o.task.Network == nil {
		return nil
	}
	for i, text := range o.task.Network.Allow {
		at := fmt.Sprintf("/network/allow/%d", i)
		asked, err := allowlist.Parse(text)
		if err != nil {
			return refuse(errcode.BadData, at, "%s", err)
		}
		if p.AnyHost || slices.ContainsFunc(p.Network, func(open allowlist.Pattern) bool { return open.Covers(asked) }) {
			continue
		}
		r := refuse(errcode.NotAllowed, at, "tenant %s may not reach %s", o.tenant, asked)
		r.Hint = fmt.Sprintf("an operator opens hosts to a tenant in tenants.%s.network", o.tenant)
		return r
	}
	return nil
}
