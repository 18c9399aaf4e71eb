package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) tenantsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "tenants",
		Short: "List, add or remove tenants",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.Tenants(ctx)
			if err != nil {
				return err
			}
			return list(a, all, "TENANT\tFROM\tCREATED\tBY", func(t client.Tenant) []any {
				if t.Settings {
					return []any{t.Name, "settings", "-", "-"}
				}
				return []any{t.Name, "added", ago(t.CreatedAt), cmp.Or(t.CreatedBy, "-")}
			})
		}),
	}
	add := &cobra.Command{
		Use:   "add TENANT",
		Short: "Add a tenant, without a restart",
		Long: "Add a tenant, without a restart. It has the limits and permissions of a tenant without settings\n" +
			"of its own; `codefleet limits set` changes its limits. Create a token for it with\n" +
			"`codefleet tokens add`.",
		Args: oneArgument("tenants add", "tenant"),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			t, err := c.CreateTenant(ctx, args[0])
			if err != nil {
				return err
			}
			if !t.Settings {
				a.warnUnserved(ctx, c, t.Name)
			}
			return a.print(t, func(w io.Writer) {
				done := "added tenant"
				if t.Settings {
					done = "the settings already have the tenant"
				}
				fmt.Fprintf(w, "%s %s; create a token with: %s\n",
					done, t.Name, a.withFlags("codefleet tokens add --tenant "+t.Name))
			})
		}),
	}
	rm := &cobra.Command{
		Use:   "rm TENANT",
		Short: "Remove a tenant that was added at run time, its tokens and its automations",
		Long: "Remove a tenant that was added at run time, and revoke its tokens. Its queued tasks are refused\n" +
			"when their turn comes; its workspaces and records stay.",
		Args: oneArgument("tenants rm", "tenant"),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			if err := c.RemoveTenant(ctx, args[0]); err != nil {
				return err
			}
			return a.print(map[string]string{"removed": args[0]}, func(w io.Writer) {
				fmt.Fprintf(w, "removed tenant %s, its tokens, schedules, triggers and webhooks\n", args[0])
			})
		}),
	}
	return listGroup(c, add, rm)
}

// warnUnserved warns if no worker of the fleet runs tasks of a tenant that was added at run time.
func (a *app) warnUnserved(ctx context.Context, c *client.Client, tenant string) {
	f, err := c.Fleet(ctx)
	if err != nil {
		fmt.Fprintf(a.stderr, "note: cannot tell whether a worker runs tasks of %s: %v\n", tenant, err)
		return
	}
	for _, w := range f.Workers {
		if !w.SettingsOnly {
			return
		}
	}
	if len(f.Workers) > 0 {
		fmt.Fprintf(a.stderr, "warning: no worker runs tasks of %s: the workers' boxes see files of the host, so they "+
			"serve only tenants of the settings; set execution.sandbox_image or execution.rootfs\n", tenant)
	}
}

// oneArgument accepts exactly one argument.
func oneArgument(command, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%s: want one %s, got %d", command, what, len(args)).
				try("codefleet " + strings.Fields(command)[0])
		}
		return nil
	}
}

func (a *app) tokensCommand() *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use:   "tokens",
		Short: "List, add or revoke bearer tokens",
		Long: "List the bearer tokens of the fleet. Those of the settings can be changed only there. The time of\n" +
			"the last use is accurate to the hour.",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.Tokens(ctx, tenant)
			if err != nil {
				return err
			}
			if tenant != "" && len(all) == 0 {
				a.noteUnknownTenant(ctx, c, tenant)
			}
			return list(a, all, "ID\tNAME\tTENANT\tSCOPES\tCREATED\tEXPIRES\tUSED", func(t client.Token) []any {
				id := t.ID
				if t.Settings {
					id = "(settings)"
				}
				return []any{
					id, t.Name, cmp.Or(t.Tenant, "-"), strings.Join(t.Scopes, ","), localMinute(t.CreatedAt),
					expiryText(t.ExpiresAt), localMinute(t.UsedAt),
				}
			})
		}),
	}
	c.Flags().StringVar(&tenant, "tenant", "", "only those of this `TENANT`")
	return listGroup(c, a.tokensAddCommand(), a.tokensRevokeCommand())
}

// localMinute formats a time to the minute, in the zone of this host. The zero time is "-".
func localMinute(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04")
}

func expiryText(t time.Time) string {
	if !t.IsZero() && !time.Now().Before(t) {
		return "expired"
	}
	return localMinute(t)
}

func (a *app) tokensAddCommand() *cobra.Command {
	var o client.TokenOptions
	var expires string
	c := &cobra.Command{
		Use:   "add",
		Short: "Create a token and print it",
		Long: "Create a token and print it. It works at once, in the whole fleet. The fleet stores only its\n" +
			"hash, so it cannot be printed again. A token for operators has the scope operator and no tenant.",
		Example: "  codefleet tokens add --tenant acme --name ci --expires 90d\n" +
			"  codefleet tokens add --tenant acme --scope read --scope approve\n" +
			"  codefleet tokens add --scope operator --name ann",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			if o.ExpiresAt, err = expiry(expires, time.Now()); err != nil {
				return err
			}
			t, err := c.CreateToken(ctx, o)
			if err != nil {
				return err
			}
			if a.output == "text" {
				fmt.Fprintf(a.stderr, "token %s (%s): %s\n", t.Name, t.ID, strings.Join(t.Scopes, ", "))
			}
			return a.print(t, func(w io.Writer) { fmt.Fprintln(w, t.Secret) })
		}),
	}
	f := c.Flags()
	f.StringVar(&o.Name, "name", "", "`NAME` in lists and logs (default: the id)")
	f.StringVar(&o.Tenant, "tenant", "", "`TENANT` that the token acts for")
	f.StringSliceVar(&o.Scopes, "scope", nil,
		"`SCOPE` of the token: "+strings.Join(schemas.Scopes(), ", ")+" (may be repeated; default submit and read)")
	f.StringVar(&expires, "expires", "", "`TIME` at which it expires: 90d, 12h, 2006-01-02 or 2006-01-02T15:04:05Z")
	completeFlag(c, "scope", schemas.Scopes()...)
	return c
}

// expiry parses the time at which a token expires.
func expiry(s string, now time.Time) (time.Time, error) {
	t, err := parseExpiry(s, now)
	if err == nil && t.Year() > 9999 {
		return t, usage("--expires %s: the time is after the year 9999", s).
			try("leave out --expires: then the token does not expire")
	}
	return t, err
}

func parseExpiry(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	var days int
	if n, err := fmt.Sscanf(s, "%dd", &days); err == nil && n == 1 && fmt.Sprintf("%dd", days) == s && days > 0 {
		return now.AddDate(0, 0, days), nil
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(d), nil
	}
	return time.Time{}, usage("--expires %s: want a time or a duration, such as 90d, 12h, 2006-01-02 or "+
		"2006-01-02T15:04:05Z", s)
}

func (a *app) tokensRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a token: requests with it are refused at once, and its streams end",
		Args:  oneArgument("tokens revoke", "token id"),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			if err := c.RevokeToken(ctx, args[0]); err != nil {
				return err
			}
			return a.print(map[string]string{"revoked": args[0]}, func(w io.Writer) {
				fmt.Fprintf(w, "revoked %s\n", args[0])
			})
		}),
	}
}
