// Command cloudevents publishes a task with the CloudEvents SDK's event type and nats.go, and prints the
// acknowledgement that the task is stored, then the result. It is an example for producers without package client.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
)

func main() {
	url := flag.String("url", "nats://127.0.0.1:4222", "URL of the NATS server, with user and password")
	tenant := flag.String("tenant", "default", "tenant of the task")
	code := flag.String("code", "print(6*7)", "code of the program")
	flag.Parse()
	if err := run(*url, *tenant, *code); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url, tenant, code string) error {
	nc, err := nats.Connect(url, nats.CustomInboxPrefix("_INBOX."+tenant))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer nc.Close()
	reply := nc.NewInbox()
	results, err := nc.SubscribeSync(reply)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}

	ev := event.New()
	ev.SetType("codefleet.task.v1")
	ev.SetSource("/examples/producers/cloudevents")
	ev.SetID(nats.NewInbox()) // a unique id, so that each event is a new task
	ev.SetExtension("replyto", reply)
	if err := ev.SetData(event.ApplicationJSON, map[string]any{"code": code}); err != nil {
		return err
	}
	body, err := json.Marshal(ev) // in structured mode, the whole event is the body
	if err != nil {
		return err
	}
	msg := nats.NewMsg("tasks.default.normal." + tenant)
	msg.Header.Set("Content-Type", event.ApplicationCloudEventsJSON)
	msg.Data = body
	stored, err := nc.RequestMsg(msg, 5*time.Second)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	fmt.Printf("stored: %s\n", stored.Data)

	result, err := results.NextMsg(time.Minute)
	if err != nil {
		return fmt.Errorf("wait for the result: %w", err)
	}
	fmt.Printf("%s: %s\n", result.Header.Get("ce-type"), result.Data)
	return nil
}
