package embedded

import (
	"bytes"
	"encoding/json"
	"fmt"

	"golang.org/x/crypto/bcrypt"
)

// NATSAccounts returns the part of a NATS server's configuration (JSON, which its configuration
// language includes) that says who may do what. An installation with servers of its own uses it too.
//
// Workers and ingest share the account FLEET, where the streams are. Each tenant has an account of
// its own that sees four doors to the fleet: publish its tasks, read its records, hear of its
// transitions, get its replies. One account with subject permissions is not enough: JetStream answers
// on whatever reply subject a request names, with the server's own rights, and so would write a
// tenant's bytes into another tenant's record. Across accounts the answer stays in the caller's.
func NATSAccounts(fleet NATSUser, tenants map[string]NATSUser) (string, error) {
	fleetUser, err := user(fleet, []string{
		"tasks.>", "log.>", "dlq.>", "delayed.>", "journal.>", "audit.>", "history.>", "spent.>", "wake.>", "cancel.>", "tool.>",
		"notify.*.reply.>", "_INBOX.>", "_R_.>",
		"$KV.>", "$O.>", "$JS.API.>", "$JS.ACK.>", "$JS.FC.>",
	}, []string{"_INBOX.>", "wake.>", "cancel.>", "notify.>", "tool.>"})
	if err != nil {
		return "", err
	}
	accounts := map[string]any{"FLEET": map[string]any{
		"jetstream": "enabled",
		"users":     []any{fleetUser},
		"exports": []any{
			map[string]any{"service": "tasks.*.*.*"},
			map[string]any{"service": readRecord("*")},
			map[string]any{"stream": "notify.*.>"},
			map[string]any{"stream": "_INBOX.*.>"},
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
	notify, inbox := "notify."+tenant+".>", "_INBOX."+tenant+".>"
	tenantUser, err := user(u, []string{submit, read}, []string{notify, inbox})
	if err != nil {
		return nil, err
	}
	from := func(subject string) map[string]string {
		return map[string]string{"account": "FLEET", "subject": subject}
	}
	return map[string]any{
		"users": []any{tenantUser},
		"imports": []any{
			map[string]any{"service": from(submit)},
			map[string]any{"service": from(read)},
			map[string]any{"stream": from(notify)},
			map[string]any{"stream": from(inbox)},
		},
	}, nil
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
		},
	}, nil
}
