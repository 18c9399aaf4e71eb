package codegen

// Usage counts model tokens.
type Usage struct {
	Model            string
	PromptTokens     int
	CompletionTokens int
	Estimated        bool // counted by Tokens, not by the endpoint
}
