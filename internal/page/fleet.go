package page

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/schemas"
)

// tenantDay is what a tenant used on a day, with its share of what all tenants used.
type tenantDay struct {
	client.TenantUsage
	Share float64 // share of the day's box-seconds, in percent
}

// getFleet shows operators the workers, the backlog, pauses, limits, and the tenants' shares and waits.
func getFleet(q *request) error {
	var data struct {
		client.Fleet
		Pauses []client.Pause
		Limits []client.TenantLimitsInfo
		Usage  []tenantDay
	}
	var err error
	if data.Fleet, err = q.c.Fleet(q.ctx); err != nil {
		return err
	}
	if data.Pauses, err = q.c.Pauses(q.ctx); err != nil {
		return err
	}
	if data.Limits, err = q.c.AllLimits(q.ctx); err != nil {
		return err
	}
	since := time.Now().UTC().AddDate(0, 0, -usageDays).Format(time.DateOnly)
	usage, err := q.c.Usage(q.ctx, client.UsageOptions{AllTenants: true, Since: since})
	if err != nil {
		return err
	}
	data.Usage = shares(usage)
	data.Usage = data.Usage[:min(len(data.Usage), listLimit)]
	return q.show("fleet", "Fleet", data)
}

// usageDays is how many days before today the page of the fleet shows.
const usageDays = 6

// shares returns the usage of each tenant and day, the latest day and the largest share first.
func shares(usage []client.TenantUsage) []tenantDay {
	total := map[string]float64{}
	for _, u := range usage {
		total[u.Day] += u.BoxSeconds
	}
	days := make([]tenantDay, len(usage))
	for i, u := range usage {
		days[i] = tenantDay{u, 100 * u.BoxSeconds / max(total[u.Day], 0.001)}
	}
	slices.SortStableFunc(days, func(a, b tenantDay) int {
		return cmp.Or(cmp.Compare(b.Day, a.Day), cmp.Compare(b.Share, a.Share))
	})
	return days
}

// postFleet pauses or resumes a tenant, a task pool or the fleet, or drains a worker.
func postFleet(q *request) (next, done string, err error) {
	target := q.form.Get("target")
	switch q.r.PathValue("verb") {
	case "pause":
		_, err = q.c.Pause(q.ctx, target, q.form.Get("reason"))
		done = "Paused: " + target
	case "resume":
		_, err = q.c.Resume(q.ctx, target)
		done = "Resumed: " + target
	case "drain":
		_, err = q.c.DrainWorker(q.ctx, target)
		done = "The worker claims no more tasks, and exits once its tasks have ended: " + target
	default:
		err = errNoPage
	}
	return "fleet", done, err
}

// getAccess shows operators the tenants and tokens.
func getAccess(q *request) error {
	var data struct {
		Tenants []client.Tenant
		Tokens  []client.Token
		Scopes  []string
	}
	data.Scopes = schemas.Scopes()
	var err error
	if data.Tenants, err = q.c.Tenants(q.ctx); err != nil {
		return err
	}
	if data.Tokens, err = q.c.Tokens(q.ctx, ""); err != nil {
		return err
	}
	return q.show("access", "Access", data)
}

// postAccess creates and removes tenants and tokens. The message has the secret of a new token, which cannot be read
// again.
func postAccess(q *request) (next, done string, err error) {
	name := strings.TrimSpace(q.form.Get("name"))
	switch q.r.PathValue("verb") {
	case "create-tenant":
		_, err = q.c.CreateTenant(q.ctx, name)
		done = "Created the tenant " + name + "."
	case "remove-tenant":
		err = q.c.RemoveTenant(q.ctx, name)
		done = "Removed the tenant " + name + ", its tokens, schedules, triggers and webhooks."
	case "create-token":
		if len(q.form.Values["scope"]) == 0 { // otherwise the token would get the default ones
			return "", "", &pageError{http.StatusBadRequest, "No scope is selected.", "Select what the token is for."}
		}
		var t client.NewToken
		t, err = q.c.CreateToken(q.ctx, client.TokenOptions{
			Name: name, Tenant: strings.TrimSpace(q.form.Get("tenant")), Scopes: q.form.Values["scope"],
		})
		done = fmt.Sprintf("Created the token %s. Its secret is shown only now: %s", t.Name, t.Secret)
	case "revoke-token":
		err = q.c.RevokeToken(q.ctx, q.form.Get("id"))
		done = "Revoked the token " + name + "."
	default:
		err = errNoPage
	}
	return "access", done, err
}
