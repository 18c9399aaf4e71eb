package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestMCPClient checks that the client waits for a task that takes longer than one call, and reports refused requests.
func TestMCPClient(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			http.Error(w, "wrong token", http.StatusUnauthorized)
			return
		}
		var m struct {
			ID     int    `json:"id"`
			Method string `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		got = append(got, strings.TrimSpace(m.Method+" "+m.Params.Name))
		if m.ID == 0 {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		task := `"status":"running","result":null`
		if m.Params.Name == "get_task" {
			task = `"status":"succeeded","result":42`
		}
		fmt.Fprintf(w, `{"id":%d,"result":{"structuredContent":{"task_id":"1","success":true,%s}}}`, m.ID, task)
	}))
	defer server.Close()
	t.Setenv("CODEFLEET_URL", server.URL)
	t.Setenv("CODEFLEET_TOKEN", "good")
	c, err := dialMCP(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	if r, _, err := c.ExecuteCode(t.Context(), "42", nil); err != nil || string(r.Result) != "42" {
		t.Errorf("result = %s, %v, want 42", r.Result, err)
	}
	want := []string{"initialize", "notifications/initialized", "tools/call execute_task", "tools/call get_task"}
	if !slices.Equal(got, want) {
		t.Errorf("requests = %q, want %q", got, want)
	}
	t.Setenv("CODEFLEET_TOKEN", "bad")
	if _, err := dialMCP(t.Context(), "w"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("with a wrong token: %v, want 401", err)
	}
}
