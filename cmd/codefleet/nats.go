package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) natsCommand() *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "nats",
		Short: "Configure a NATS server of your own",
	}, a.natsSetupCommand())
}

func (a *app) natsSetupCommand() *cobra.Command {
	var tenants []string
	c := &cobra.Command{
		Use:   "setup",
		Short: "Print accounts and permissions for a NATS server, with new passwords",
		Long: "Print the accounts of the fleet and of its tenants with their permissions, in the NATS server's\n" +
			"configuration language. Save the output as a file, include it in the server's configuration, and\n" +
			"reload the server. The users and their new random passwords are printed on standard error; the\n" +
			"file has only hashes of the passwords. Tenants are those of the settings and of --tenant.",
		Example: "  codefleet nats setup > /etc/nats/codefleet.conf\n" +
			"  codefleet nats setup --tenant acme --tenant globex > codefleet.conf",
		RunE: a.do(func(context.Context, []string) error {
			settings, err := a.load()
			if err != nil {
				return err
			}
			users := map[string]embedded.NATSUser{}
			for _, name := range append(slices.Collect(maps.Keys(settings.Tenants)), tenants...) {
				if err := schemas.CheckName("tenant", name); err != nil {
					return usage("--tenant: %v", err)
				}
				users[name] = embedded.NATSUser{User: name, Password: rand.Text()}
			}
			fleet := embedded.NATSUser{User: "codefleet-fleet", Password: rand.Text()}
			conf, err := embedded.NATSAccounts(fleet, users)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "# workers and ingest: nats.user and nats.password\n%s %s\n# tenants\n",
				fleet.User, fleet.Password)
			for _, name := range slices.Sorted(maps.Keys(users)) {
				fmt.Fprintln(a.stderr, name, users[name].Password)
			}
			_, err = fmt.Fprint(a.stdout, conf)
			return err
		}),
	}
	c.Flags().StringSliceVar(&tenants, "tenant", nil, "`NAME` of a further tenant (may be repeated)")
	return c
}
