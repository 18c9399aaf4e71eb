// Command registertool registers two Go functions as tools of a fleet for as long as it runs:
//
//	codefleet up &
//	go run ./examples/registertool &
//	codefleet run --code 'from servers.crm import find_customer; print(find_customer("Ada")["email"])'
//
// If two processes run it, they share the calls.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/codefleet/codefleet/client"
)

// Query is the argument of find_customer.
type Query struct {
	Name string `json:"name" jsonschema:"the beginning of the customer's name"`
}

// Customer is the result of find_customer.
type Customer struct {
	Name  string   `json:"name"`
	Email string   `json:"email"`
	Tags  []string `json:"tags" jsonschema:"tags set by the sales department"`
}

var customers = []Customer{
	{"Ada Lovelace", "ada@example.org", []string{"prospect"}},
	{"Grace Hopper", "grace@example.org", []string{"customer", "navy"}},
}

func findCustomer(_ context.Context, q Query) (Customer, error) {
	for _, c := range customers {
		if strings.HasPrefix(c.Name, q.Name) {
			return c, nil
		}
	}
	return Customer{}, fmt.Errorf("no customer is named %q", q.Name)
}

func countCustomers(context.Context, struct{}) (int, error) { return len(customers), nil }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		slog.Error("serve tools", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	options, err := client.LocateNATS("", "")
	if err != nil {
		return err
	}
	c, err := client.New(ctx, options)
	if err != nil {
		return err
	}
	defer c.Close()
	readOnly := client.ToolAnnotations{ReadOnly: true}
	tools, err := c.RegisterTools(ctx, client.RegisterOptions{}, "crm",
		client.NewTool(client.ToolInfo{
			Name: "find_customer", Description: "Find a customer by name.", Annotations: readOnly,
		}, findCustomer),
		client.NewTool(client.ToolInfo{
			Name: "count_customers", Description: "Count the customers.", Annotations: readOnly,
		}, countCustomers),
	)
	if err != nil {
		return err
	}
	defer tools.Close()
	fmt.Println("serving crm/find_customer and crm/count_customers")
	<-ctx.Done()
	return nil
}
