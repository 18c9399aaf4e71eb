package models

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/toolsearch"
)

// A key is sent only to the address for which it is configured.
func TestProfilesKeepKeysApart(t *testing.T) {
	zero := 0.0
	c := config.Default()
	c.LLM.Provider, c.LLM.APIKey, c.LLM.AzureAPIKey = "openai", "main", "azure"
	c.LLM.BaseURL, c.LLM.AzureEndpoint = "https://main.example/v1", "https://r.example"
	for _, p := range []struct {
		name                  string
		profile               config.LLMProfile
		url, key, model, depl string
	}{
		{"all of llm", config.LLMProfile{}, "https://main.example/v1", "main", "gpt-4o-mini", ""},
		{
			"another model",
			config.LLMProfile{Model: "m", Temperature: &zero},
			"https://main.example/v1", "main", "m",
			"",
		},
		{
			"another address",
			config.LLMProfile{Model: "m", BaseURL: "https://other.example/v1"},
			"https://other.example/v1", "", "m", "",
		},
		{
			"another address and its key",
			config.LLMProfile{BaseURL: "https://other.example/v1", APIKey: "k"},
			"https://other.example/v1", "k", "gpt-4o-mini", "",
		},
		{
			"another provider",
			config.LLMProfile{Provider: "azure_openai", Model: "d"},
			"https://r.example", "azure",
			"d", "d",
		},
	} {
		got := profileOf(c, p.profile)
		if got.BaseURL != p.url || got.APIKey != p.key || got.Model != p.model || got.Deployment != p.depl {
			t.Errorf("%s: profileOf = %s, key %q, model %s, deployment %q; want %s, %q, %s, %q", p.name,
				got.BaseURL, got.APIKey, got.Model, got.Deployment, p.url, p.key, p.model, p.depl)
		}
		want := c.LLM.Temperature
		if p.profile.Temperature != nil {
			want = *p.profile.Temperature
		}
		if *got.Temperature != want {
			t.Errorf("%s: temperature = %v, want %v", p.name, *got.Temperature, want)
		}
	}
}

func TestEmbeddingsNeedAModel(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, c := range []struct {
		name   string
		change func(*config.Config)
		on, ok bool
	}{
		{"nothing", func(*config.Config) {}, false, true},
		{"a key alone", func(c *config.Config) { c.LLM.OpenAIAPIKey = "k" }, false, true},
		{"a model", func(c *config.Config) { c.Embeddings.Model = "m" }, true, true},
		{"a deployment", func(c *config.Config) {
			c.LLM.AzureEmbedderName, c.LLM.AzureEndpoint = "e", "https://r.example"
		}, true, true},
		{"a deployment without its resource", func(c *config.Config) { c.LLM.AzureEmbedderName = "e" }, false, false},
	} {
		settings := config.Default()
		settings.Data = t.TempDir()
		c.change(settings)
		got, err := Embeddings(settings, log)
		if (err == nil) != c.ok || (got != nil) != c.on {
			t.Errorf("%s: embeddings on = %v, error %v; want on %v, ok %v", c.name, got != nil, err, c.on, c.ok)
		}
		if err == nil {
			if err := got.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestEmbeddingsHideValues checks that the endpoint gets texts, here that of a skill, without private values.
func TestEmbeddingsHideValues(t *testing.T) {
	bodies := make(chan string, 10)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer endpoint.Close()
	c := config.Default()
	c.Data = t.TempDir()
	c.Embeddings.Model, c.Embeddings.BaseURL = "m", endpoint.URL
	c.Tenants = map[string]config.Tenant{"acme": {Privacy: config.TenantPrivacy{Mode: "egress"}}}
	e, err := Embeddings(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer func() {
		stop()
		running.Wait()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	running.Go(func() { e.Run(ctx) })
	index := toolsearch.New(e).Index(&tools.Listing{Skills: []tools.Skill{{
		Name: "mail", Runnable: true, Description: "mails ada@example.org", Signature: "run(to='bob@example.org')",
	}}})
	index.Words() // builds the index, which Run then embeds
	body := <-bodies
	if strings.Contains(body, "@example.org") || !strings.Contains(body, "mails [EMAIL_") {
		t.Errorf("the endpoint got %s, want tokens", body)
	}
}

// TestEmbeddingsNeedTheRecognizer checks that texts which the recognizer has not judged are not embedded, neither as
// they are nor replaced whole, and that it gets many texts in a request.
func TestEmbeddingsNeedTheRecognizer(t *testing.T) {
	response, requests := "[]", 0
	recognizer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		_, _ = io.WriteString(w, response)
	}))
	defer recognizer.Close()
	c := config.Default()
	c.Privacy.Mode, c.Privacy.Recognizer.URL = "egress", recognizer.URL
	hide, err := embeddingPrivacy(c)
	if err != nil {
		t.Fatal(err)
	}
	texts := slices.Repeat([]string{"mails ada@example.org", `{"password": "hunter2"}`}, 20)
	got, err := hide(t.Context(), texts)
	if err != nil || len(got) != len(texts) || !strings.HasPrefix(got[38], "mails [EMAIL_") ||
		!strings.HasPrefix(got[39], `{"password":"[SECRET_`) || requests > 5 {
		t.Errorf("texts = %q, %v after %d requests, want tokens after at most 5", got, err, requests)
	}
	response, requests = "<html>", 0
	if got, err := hide(t.Context(), texts); err == nil || got != nil || requests != 1 {
		t.Errorf("with a failed recognizer: texts = %q, %v after %d requests, want an error after 1",
			got, err, requests)
	}
}

func TestDailyTokens(t *testing.T) {
	c := config.Default()
	c.Tenants = map[string]config.Tenant{"a": {DailyTokens: 7}, "b": {}}
	if limit := DailyTokens(c); limit("a") != 7 || limit("b") != 0 {
		t.Errorf("limits = %d and %d, want 7 and none", limit("a"), limit("b"))
	}
	c.LLM.DailyTokens = 100
	if limit := DailyTokens(c); limit("a") != 7 || limit("b") != 100 {
		t.Errorf("limits = %d and %d, want 7 and the fleet's 100", limit("a"), limit("b"))
	}
	if DailyTokens(config.Default()) != nil {
		t.Error("DailyTokens without a limit = a function, want nil")
	}
}
