package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/client"
)

// TestMain gives the examples a fake fleet that returns the output of their tasks.
func TestMain(m *testing.M) {
	outputs := map[string]string{"Calculate 5 + 3": "8\n", "print(6*7)": "42\n", "print(sum(inputs))": "6\n"}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/tasks", func(w http.ResponseWriter, r *http.Request) {
		var s client.Submission
		_ = json.NewDecoder(r.Body).Decode(&s)
		rec := record(client.Succeeded)
		rec.Result.Output = outputs[s.Code+s.Description]
		respond(w, http.StatusOK, rec)
	})
	mux.HandleFunc("GET /v1/tasks/{id}", func(w http.ResponseWriter, _ *http.Request) {
		rec := record(client.Succeeded)
		rec.Result.Output = outputs["print(sum(inputs))"]
		respond(w, http.StatusOK, rec)
	})
	mux.HandleFunc("GET /v1/tasks/{id}/events", func(w http.ResponseWriter, _ *http.Request) {
		rec, _ := json.Marshal(record(client.Succeeded))
		_, _ = fmt.Fprint(w, event(1, "4")+event(2, "2\n")+"event: record\ndata: "+string(rec)+"\n\n")
	})
	srv := httptest.NewServer(mux)
	_ = os.Setenv("CODEFLEET_FLEET", "")
	_ = os.Setenv("CODEFLEET_URL", srv.URL)
	code := m.Run()
	srv.Close()
	os.Exit(code)
}

func ExampleExecuteTask() {
	result, output, err := client.ExecuteTask(context.Background(), "Calculate 5 + 3")
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Status, strings.TrimSpace(output))
	// Output: succeeded 8
}

func ExampleNewAgent() {
	ctx := context.Background()
	agent, err := client.NewAgent(ctx, client.AgentOptions{ // CODEFLEET_URL names the fleet
		Session: "monday",
		Tools:   []string{"calculator/*"},
		Limits:  client.Limits{TimeoutS: 30},
	})
	if err != nil {
		panic(err)
	}
	defer agent.Close()
	_, output, err := agent.Execute(ctx, client.Task{Code: "print(6*7)"})
	if failed, ok := errors.AsType[*client.TaskError](err); ok {
		fmt.Printf("line %d: %s\n", failed.Detail.Line, failed.Detail.Message)
	}
	fmt.Print(output)
	// Output: 42
}

func ExampleClient_Submit() {
	ctx := context.Background()
	fleet, err := client.Locate("")
	if err != nil {
		panic(err)
	}
	c, err := client.New(ctx, fleet)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	r, err := c.Submit(ctx, client.Submission{
		Task:           client.Task{Code: "print(sum(inputs))", Inputs: []byte(`[1, 2, 3]`)},
		IdempotencyKey: "order-4711", // two submissions with this key are one task
		ExpiresAt:      time.Now().Add(time.Hour),
	})
	if err != nil {
		panic(err)
	}
	r, err = c.Wait(ctx, r.TaskID)
	if err != nil {
		panic(err)
	}
	fmt.Print(r.Result.Output)
	// Output: 6
}

func ExampleClient_Watch() {
	ctx := context.Background()
	fleet, err := client.Locate("")
	if err != nil {
		panic(err)
	}
	c, err := client.New(ctx, fleet)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	r, err := c.Watch(ctx, "abcdefghijklmnopqrstuvwxyz", 0, func(e client.Event) error {
		fmt.Print(e.Text)
		return nil
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Status)
	// Output:
	// 42
	// succeeded
}
