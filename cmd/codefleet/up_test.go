package main

import (
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/config"
)

// TestModelIsNamed checks that `up` and doctor name the model that is configured, or say how to configure one.
func TestModelIsNamed(t *testing.T) {
	for want, model := range map[string]config.LLM{
		"none; the rules write programs (to use a model, set OPENAI_API_KEY, llm.base_url or llm.azure_endpoint)": {
			Model: "gpt-4o",
		},
		"gpt-4o (openai)": {Enabled: true, Provider: "openai", Model: "gpt-4o"},
		"mine (azure_openai)": {
			Enabled: true, Provider: "azure_openai", Model: "gpt-4o", AzureDeploymentName: "mine",
		},
	} {
		c := &config.Config{LLM: model}
		var out strings.Builder
		showAddresses(&out, addresses{Model: modelText(c)}, time.Second)
		if !strings.Contains(out.String(), "model\t"+want+"\n") {
			t.Errorf("up prints %q, want the model %q", out.String(), want)
		}
		if got := (&hostCheck{Config: c}).model(t.Context()); got != passed("model", "%s", want) {
			t.Errorf("doctor finds %+v, want the model %q", got, want)
		}
	}
}

// `codefleet up` says that the weather is made up, and does not say so of real weather.
func TestUpNamesTheSample(t *testing.T) {
	for provider, want := range map[string]bool{"sample": true, "open-meteo": false} {
		var out strings.Builder
		showAddresses(&out, addresses{Weather: provider}, time.Second)
		if got := strings.Contains(out.String(), "weather\tsample (made up; "); got != want {
			t.Errorf("showAddresses() with %s = %q, says sample %v, want %v", provider, out.String(), got, want)
		}
	}
}
