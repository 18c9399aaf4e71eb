// Package models constructs the models that write programs, and the embeddings, from settings.
package models

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/form"
	"github.com/codefleet/codefleet/internal/guardrails/privacy"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/toolsearch"
)

// Writers returns the models that write programs: the fleet's own, which is nil if there is none, and the
// profiles by name.
func Writers(c *config.Config) (fleet *codegen.Writer, profiles map[string]*codegen.Writer, err error) {
	if c.LLM.Enabled {
		if fleet, err = writer(c, profileOf(c, config.LLMProfile{})); err != nil {
			return nil, nil, fmt.Errorf("llm: %w", err)
		}
	}
	profiles = map[string]*codegen.Writer{}
	for name, p := range c.LLM.Profiles {
		if profiles[name], err = writer(c, profileOf(c, p)); err != nil {
			return nil, nil, fmt.Errorf("llm.profiles.%s: %w", name, err)
		}
	}
	return fleet, profiles, nil
}

func writer(c *config.Config, m chatModel) (*codegen.Writer, error) {
	model, err := codegen.NewOpenAI(m.OpenAIOptions)
	if err != nil {
		return nil, err
	}
	return codegen.NewWriter(model, codegen.WriterOptions{MaxTokens: m.maxTokens, Timeout: c.LLM.Timeout}), nil
}

type chatModel struct {
	codegen.OpenAIOptions
	maxTokens int
}

const azure = "azure_openai"

// profileOf returns the model of a profile. The zero profile is the model of section llm. A key of section llm is
// sent only to an address of that section.
func profileOf(c *config.Config, p config.LLMProfile) chatModel {
	l := c.LLM
	provider := cmp.Or(p.Provider, l.Provider)
	o := codegen.OpenAIOptions{
		Model: cmp.Or(p.Model, l.Model), Temperature: cmp.Or(p.Temperature, &l.Temperature),
		BaseURL: p.BaseURL, APIKey: string(p.APIKey),
	}
	if p.BaseURL == "" {
		address, key := endpoint(l, provider)
		o.BaseURL, o.APIKey = address, cmp.Or(o.APIKey, key)
	}
	if provider == azure {
		o.Deployment = cmp.Or(p.Model, l.AzureDeploymentName, l.Model)
		o.APIVersion = cmp.Or(p.APIVersion, l.AzureAPIVersion)
	}
	return chatModel{o, cmp.Or(p.MaxTokens, l.MaxTokens)}
}

// endpoint returns a provider's address and key in section llm. llm.api_key is the key of llm.provider.
func endpoint(l config.LLM, provider string) (address, key string) {
	generic := ""
	if provider == l.Provider {
		generic = string(l.APIKey)
	}
	if provider == azure {
		return l.AzureEndpoint, cmp.Or(generic, string(l.AzureAPIKey))
	}
	return l.BaseURL, cmp.Or(generic, string(l.OpenAIAPIKey))
}

// Embeddings returns the configured embeddings, or nil if the settings name no model for them.
func Embeddings(c *config.Config, log *slog.Logger) (*toolsearch.Embeddings, error) {
	e, l := c.Embeddings, c.LLM
	deployment := ""
	if e.Model == "" && l.AzureEmbedderName != "" {
		deployment = l.AzureEmbedderName
	}
	if e.Model == "" && deployment == "" {
		return nil, nil
	}
	provider := l.Provider
	if deployment != "" {
		provider = azure
	}
	o := selection.OpenAIOptions{
		Model: cmp.Or(e.Model, deployment), Dimensions: e.Dimensions, BaseURL: e.BaseURL, APIKey: string(e.APIKey),
	}
	if e.BaseURL == "" {
		address, key := endpoint(l, provider)
		o.BaseURL, o.APIKey = address, cmp.Or(o.APIKey, key)
	}
	if provider == azure && e.BaseURL == "" || deployment != "" {
		o.Deployment, o.APIVersion = o.Model, cmp.Or(l.AzureEmbedderVersion, l.AzureAPIVersion)
	}
	if o.Deployment != "" && o.BaseURL == "" {
		return nil, errors.New("embeddings: an Azure deployment is set, but llm.azure_endpoint is empty")
	}
	hide, err := embeddingPrivacy(c)
	if err != nil {
		return nil, err
	}
	return toolsearch.OpenEmbeddings(o, hide, c.Data, e.Deadline, log)
}

// embeddingPrivacy returns a function that replaces values in texts before they are embedded, or nil if privacy is off
// for all tenants. It replaces what any tenant replaces, because tenants share vectors. Its tokens are never
// replaced by the values again.
func embeddingPrivacy(c *config.Config) (toolsearch.Hide, error) {
	if !c.PrivacyEnabled() {
		return nil, nil
	}
	o := c.PrivacyOptions()
	o.Key = []byte(rand.Text())
	f, err := privacy.NewFilter(o)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, texts []string) ([]string, error) {
		return f.ReplaceStrict(ctx, privacy.Egress, texts)
	}, nil
}

// DailyTokens returns a function that returns how many model tokens a tenant may spend per day, or 0 for no
// limit. It is nil if no tenant has a limit.
func DailyTokens(c *config.Config) func(tenant string) int {
	limited := c.LLM.DailyTokens > 0
	for _, t := range c.Tenants {
		limited = limited || t.DailyTokens > 0
	}
	if !limited {
		return nil
	}
	return func(tenant string) int { return cmp.Or(c.Tenants[tenant].DailyTokens, c.LLM.DailyTokens) }
}

// Chat returns the model of section llm for a conversation of one request, or nil if it is not enabled.
func Chat(c *config.Config) (form.Model, error) {
	if !c.LLM.Enabled {
		return nil, nil
	}
	o := profileOf(c, config.LLMProfile{})
	model, err := codegen.NewOpenAI(o.OpenAIOptions)
	if err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	return func(ctx context.Context, system, user string) (string, error) {
		ctx, stop := context.WithTimeout(ctx, c.LLM.Timeout)
		defer stop()
		messages := []codegen.Message{{Role: "system", Text: system}, {Role: "user", Text: user}}
		response, err := model.Complete(ctx, messages, o.maxTokens, nil)
		return response.Text, err
	}, nil
}
