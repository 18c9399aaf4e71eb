package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/codefleet/codefleet/client"
)

// crmProcess serves registered tools until SIGINT, as a tenant's process does. Its argument is the server's name.
func crmProcess() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serveCRM(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type crmQuery struct {
	Name  string `json:"name" jsonschema:"the customer's name"`
	Times int    `json:"times,omitempty" jsonschema:"how often to repeat the name"`
}

type customer struct {
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

type note struct {
	Text string `json:"text"`
}

// addNote has a side effect: each call appends a line. It returns the size of the file.
func addNote(_ context.Context, n note) (int64, error) {
	f, err := os.OpenFile("notes", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, n.Text); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func serveCRM(ctx context.Context, server string) error {
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
	info := func(name, description string) client.ToolInfo {
		return client.ToolInfo{
			Name: name, Description: description, Annotations: readOnly,
			Expose: strings.HasPrefix(name, "find") || name == "count",
		}
	}
	r, err := c.RegisterTools(ctx, client.RegisterOptions{}, server,
		client.NewTool(info("find-customer", "Find a customer by name."),
			func(_ context.Context, q crmQuery) (customer, error) {
				if q.Name == "" {
					return customer{}, errors.New("a customer has a name")
				}
				return customer{Name: strings.Repeat(q.Name, max(1, q.Times)), Tags: []string{"new"}}, nil
			}),
		client.NewTool(info("count", "Count the customers."),
			func(context.Context, struct{}) (int, error) { return 42, nil }),
		client.NewTool(info("contact", "Return the address and the telephone number of a customer."), plantedContact),
		client.NewTool(client.ToolInfo{Name: "add-note", Description: "Add a note to the file of notes."}, addNote),
		client.NewTool(info("crash", "Crash."),
			func(context.Context, struct{}) (string, error) { panic("the secret reason") }),
		client.NewTool(info("flood", "Return too much."), func(context.Context, struct{}) (string, error) {
			return strings.Repeat("x", 2<<20), nil
		}),
	)
	if err != nil {
		return err
	}
	defer r.Close()
	<-ctx.Done()
	return nil
}
