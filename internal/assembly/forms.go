package assembly

import (
	"context"

	"github.com/codefleet/codefleet/internal/assembly/models"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/form"
	"github.com/codefleet/codefleet/internal/guardrails/privacy"
)

// FormModel returns the model of section llm for filling in forms, or nil if there is none. If privacy is on for the
// fleet or any tenant, the model gets privacy tokens instead of values.
func FormModel(c *config.Config) (form.Model, error) {
	m, err := models.Chat(c)
	if m == nil || err != nil || !c.PrivacyEnabled() {
		return m, err
	}
	filter, err := newPrivacy(c)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, system, user string) (string, error) {
		tokens := filter.Strict(privacy.Egress)
		return m.Private(tokens.Replace, tokens.RestoreJSON)(ctx, system, user)
	}, nil
}
