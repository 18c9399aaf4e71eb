package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/codefleet/codefleet/client"
)

func ExampleExecuteTask() {
	result, output, err := client.ExecuteTask(context.Background(), "Calculate 5 + 3")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(output)
	fmt.Println(result.Status, result.Sandbox.Driver)
}

func ExampleNewAgent() {
	ctx := context.Background()
	agent, err := client.NewAgent(ctx, client.AgentOptions{
		Options: client.Options{URL: "http://127.0.0.1:8787", Token: os.Getenv("CODEFLEET_TOKEN")},
		Session: "monday",
		Tools:   []string{"calculator/*"},
		Limits:  client.Limits{TimeoutS: 30},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close()
	_, output, err := agent.Execute(ctx, client.Task{Code: "print(6*7)"})
	if failed, ok := errors.AsType[*client.TaskError](err); ok {
		log.Fatalf("line %d: %s", failed.Detail.Line, failed.Detail.Message)
	}
	fmt.Print(output)
}

func ExampleClient_Submit() {
	ctx := context.Background()
	c, err := client.New(ctx, client.Options{URL: "nats://127.0.0.1:4222", Tenant: "default"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	r, err := c.Submit(ctx, client.Submission{
		Task:           client.Task{Code: "print(sum(inputs))", Inputs: []byte(`[1, 2, 3]`)},
		IdempotencyKey: "order-4711",
		ExpiresAt:      time.Now().Add(time.Hour),
	})
	if err != nil {
		log.Fatal(err)
	}
	r, err = c.Wait(ctx, r.TaskID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(r.Result.Output)
}

func ExampleClient_Watch() {
	ctx := context.Background()
	c, err := client.New(ctx, client.Options{URL: "http://127.0.0.1:8787"})
	if err != nil {
		log.Fatal(err)
	}
	r, err := c.Watch(ctx, "abcdefghijklmnopqrstuvwxyz", 0, func(e client.Event) error {
		fmt.Print(e.Text)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Status)
}
