package embedded

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/crypto/bcrypt"
)

// NATSAccounts returns the accounts and permissions in a NATS server's configuration, as JSON, which is valid in the
// server's configuration language. Installations with separate servers use it too.
//
// Workers and ingest share the account FLEET, which has the streams. Each tenant has a separate account that can
// publish the tenant's tasks and events, read its records, subscribe to their transitions, receive its results, answer
// its pending approvals, and serve tools. A single account with permissions on subjects would not be enough: JetStream
// responds on any reply subject that a request names, with the server's permissions, so a tenant could make it write
// into another tenant's record. With separate accounts, the response stays in the requester's account.
func NATSAccounts(fleet NATSUser, tenants map[string]NATSUser) (string, error) {
	fleetUser, err := user(fleet, []string{
		"tasks.>", "log.>", "dlq.>", "delayed.>", "journal.>", "audit.>", "asked.>", "history.>", "spent.>", "usage.>",
		"rate.>", "sessions.>", "wake.>", "cancel.>", "skills.*", "tool.>", "events.*", "deliver.*.*", "ordered.>",
		"offer.*.*", "offers", "offers.*",
		"submitted.*.*", "notify.*.reply.>", "_INBOX.>", "_R_.>",
		"$KV.>", "$O.>", "$JS.API.>", "$JS.ACK.>", "$JS.FC.>",
	}, []string{
		"_INBOX.>", "wake.>", "cancel.>", "skills.*", "notify.>", "tool.>", "offer.*.*", "offers", "offers.*",
		"approvals.*",
	})
	if err != nil {
		return "", err
	}
	imports := []any{}
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		account := "tenant-" + tenant
		imports = append(imports,
			service(from(account, toolSubject(tenant))), stream(from(account, offerSubject(tenant))))
	}
	accounts := map[string]any{"FLEET": map[string]any{
		"jetstream": "enabled",
		"imports":   imports,
		"users":     []any{fleetUser},
		"exports": []any{
			service("tasks.*.*.*"), service("events.*"), service(readSubject("*")), service("approvals.*"),
			stream("notify.*.>"), stream("_INBOX.*.>"), stream("offers"), stream("offers.*"),
		},
	}}
	for tenant, u := range tenants {
		if accounts["tenant-"+tenant], err = tenantAccount(tenant, u); err != nil {
			return "", err
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(map[string]any{"accounts": accounts})
	return b.String(), err
}

func tenantAccount(tenant string, u NATSUser) (any, error) {
	submit, read, events := "tasks.*.*."+tenant, readSubject(tenant), "events."+tenant
	approvals := "approvals." + tenant
	notify, inbox := "notify."+tenant+".>", "_INBOX."+tenant+".>"
	tenantUser, err := user(u, []string{submit, read, events, offerSubject(tenant), approvals},
		[]string{notify, inbox, toolSubject(tenant), "offers", "offers." + tenant})
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"users": []any{tenantUser},
		"exports": []any{
			map[string]any{
				"service": toolSubject(tenant), "accounts": []string{"FLEET"}, "response_threshold": toolTimeout,
			},
			map[string]any{"stream": offerSubject(tenant), "accounts": []string{"FLEET"}},
		},
		"imports": []any{
			service(from("FLEET", submit)), service(from("FLEET", read)), service(from("FLEET", events)),
			service(from("FLEET", approvals)),
			stream(from("FLEET", notify)), stream(from("FLEET", inbox)),
			stream(from("FLEET", "offers")), stream(from("FLEET", "offers."+tenant)),
		},
	}, nil
}

// toolTimeout bounds a call of a registered tool. It is longer than any timeout that a tool can register.
const toolTimeout = "15m"

// toolSubject matches the calls of a tenant's registered tools.
func toolSubject(tenant string) string { return "tool." + tenant + ".*.*" }

// offerSubject matches the offers of a tenant's processes.
func offerSubject(tenant string) string { return "offer." + tenant + ".*" }

// service and stream return an export of a subject, or an import.
func service(subject any) any { return map[string]any{"service": subject} }
func stream(subject any) any  { return map[string]any{"stream": subject} }

// from returns the subject of an import.
func from(account, subject string) map[string]string {
	return map[string]string{"account": account, "subject": subject}
}

// readSubject matches the requests that read a tenant's records.
func readSubject(tenant string) string {
	return "$JS.API.DIRECT.GET.KV_TASKSTATE.$KV.TASKSTATE." + tenant + ".>"
}

func user(u NATSUser, publish, subscribe []string) (any, error) {
	// The minimum cost is enough for random passwords; the default would delay each connection by 100 ms.
	hash, err := bcrypt.GenerateFromPassword([]byte(u.Password), bcrypt.MinCost)
	if err != nil {
		return nil, fmt.Errorf("password of user %s: %w", u.User, err)
	}
	return map[string]any{
		"user":     u.User,
		"password": string(hash),
		"permissions": map[string]any{
			"publish":   map[string]any{"allow": publish},
			"subscribe": map[string]any{"allow": subscribe},
			// Allows one response to each request that the user receives, within the account.
			"allow_responses": map[string]any{"max": 1, "expires": toolTimeout},
		},
	}, nil
}
