package embedded

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/crypto/bcrypt"
)

// NATSAccounts returns the part of a NATS server's configuration (JSON, which its configuration
// language includes) that says who may do what. An installation with servers of its own uses it too.
//
// Workers and ingest share the account FLEET, where the streams are. Each tenant has an account of
// its own that sees five doors to the fleet: publish its tasks, read its records, hear of its
// transitions, get its replies, answer for its tool calls that wait for approval. One account with subject permissions is not enough: JetStream answers
// on whatever reply subject a request names, with the server's own rights, and so would write a
// tenant's bytes into another tenant's record. Across accounts the answer stays in the caller's.
func NATSAccounts(fleet NATSUser, tenants map[string]NATSUser) (string, error) {
	fleetUser, err := user(fleet, []string{
		"tasks.>", "log.>", "dlq.>", "delayed.>", "journal.>", "audit.>", "asked.>", "history.>", "spent.>", "wake.>", "cancel.>", "tool.>",
		"offer.*.*", "offers", "offers.*",
		"notify.*.reply.>", "_INBOX.>", "_R_.>",
		"$KV.>", "$O.>", "$JS.API.>", "$JS.ACK.>", "$JS.FC.>",
	}, []string{"_INBOX.>", "wake.>", "cancel.>", "notify.>", "tool.>", "offer.*.*", "offers", "offers.*", "approvals.*"})
	if err != nil {
		return "", err
	}
	imports := []any{}
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		imports = append(imports,
			map[string]any{"service": from("tenant-"+tenant, calls(tenant))}, map[string]any{"stream": from("tenant-"+tenant, offer(tenant))})
	}
	accounts := map[string]any{"FLEET": map[string]any{
		"jetstream": "enabled",
		"imports":   imports,
		"users":     []any{fleetUser},
		"exports": []any{
			map[string]any{"service": "tasks.*.*.*"},
			map[string]any{"service": readRecord("*")},
			map[string]any{"service": "approvals.*"},
			map[string]any{"stream": "notify.*.>"},
			map[string]any{"stream": "_INBOX.*.>"},
			map[string]any{"stream": "offers"},
			map[string]any{"stream": "offers.*"},
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
	submit, read := "tasks.*.*."+tenant, readRecord(tenant)
	approvals := "approvals." + tenant
	notify, inbox := "notify."+tenant+".>", "_INBOX."+tenant+".>"
	tenantUser, err := user(u, []string{submit, read, offer(tenant), approvals}, []string{notify, inbox, calls(tenant), "offers", "offers." + tenant})
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"users": []any{tenantUser},
		"exports": []any{
			map[string]any{"service": calls(tenant), "accounts": []string{"FLEET"}, "response_threshold": answerTime},
			map[string]any{"stream": offer(tenant), "accounts": []string{"FLEET"}},
		},
		"imports": []any{
			map[string]any{"service": from("FLEET", submit)},
			map[string]any{"service": from("FLEET", read)},
			map[string]any{"service": from("FLEET", approvals)},
			map[string]any{"stream": from("FLEET", notify)},
			map[string]any{"stream": from("FLEET", inbox)},
			map[string]any{"stream": from("FLEET", "offers")},
			map[string]any{"stream": from("FLEET", "offers."+tenant)},
		},
	}, nil
}

// answerTime is how long a tool of a tenant's process may take to answer.
const answerTime = "15m"

// calls are those of the tools that the tenant's processes serve, offer what they say of themselves.
func calls(tenant string) string { return "tool." + tenant + ".*.*" }
func offer(tenant string) string { return "offer." + tenant + ".*" }

func from(account, subject string) map[string]string {
	return map[string]string{"account": account, "subject": subject}
}

func readRecord(tenant string) string {
	return "$JS.API.DIRECT.GET.KV_TASKSTATE.$KV.TASKSTATE." + tenant + ".>"
}

func user(u NATSUser, publish, subscribe []string) (any, error) {
	// The cheapest cost: these passwords are random, and a connection should not cost 100 ms.
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
			// One answer to what was asked on a subject that may be subscribed to, in the own account.
			"allow_responses": map[string]any{"max": 1, "expires": answerTime},
		},
	}, nil
}
