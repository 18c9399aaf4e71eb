package pipeline

import (
	"context"
	"encoding/json"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/tools/broker"
)

// promptPrivacy returns the functions that keep personal data and secrets from the model. With the mode egress, Restore
// puts the values back into the program that the model writes. With broker, the program keeps the privacy tokens, and
// the arguments of its tool calls get the values.
func (t task) promptPrivacy() codegen.Privacy {
	if t.tokens == nil {
		return codegen.Privacy{}
	}
	return codegen.Privacy{Hide: t.tokens.ReplaceTexts, Restore: t.tokens.RestoreCode}
}

// tokenisedDescription returns the description of the task, with privacy tokens in place of values. The models that
// compute embeddings and the tool history get this text.
func (t task) tokenisedDescription(ctx context.Context) string {
	return t.tokens.Replace(ctx, t.job.Task.Description)
}

// tokenisedJSON returns the arguments or the result of a call with privacy tokens in place of values, for the person
// who decides about the call, and for the model that repairs the program.
func (t task) tokenisedJSON(ctx context.Context, v json.RawMessage) json.RawMessage {
	tokenised, err := t.tokens.ReplaceJSON(ctx, v)
	if err != nil {
		return json.RawMessage(`"(a value that is not valid JSON)"`)
	}
	return tokenised
}

// privacyHooks returns the hooks that replace values in tools' results with privacy tokens, and privacy tokens in the
// arguments of permitted tools with values. They are nil unless the mode is broker, except Excerpt, which replaces
// values for the model that repairs the program.
func (p *Pipeline) privacyHooks(ctx context.Context, s steps) broker.Hooks {
	tokens := s.task.tokens
	if !tokens.Broker() {
		return broker.Hooks{Excerpt: s.task.tokenisedJSON}
	}
	if s.draft.by == codegen.ByModel { // tokens must know the prompt's tokens, even if an earlier run sent the prompt
		s.task.promptPrivacy().HideIn(ctx, s.draft.request)
	}
	fleet, tenant := p.Privacy.RestoreOf(s.task.ref.Tenant)
	return broker.Hooks{
		Restore: func(_ context.Context, c broker.Call) (json.RawMessage, error) {
			if !broker.Allowed(fleet, c.Server, c.Tool) || !broker.Allowed(tenant, c.Server, c.Tool) {
				return c.Args, nil
			}
			return tokens.RestoreJSON(c.Args)
		},
		Tokenise: func(ctx context.Context, _ broker.Call, v json.RawMessage) (json.RawMessage, error) {
			return tokens.ReplaceJSON(ctx, v)
		},
		Seal: tokens.Seal, Open: tokens.Open, Excerpt: s.task.tokenisedJSON,
	}
}
