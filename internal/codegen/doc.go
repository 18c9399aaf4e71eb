// Package codegen turns a task and the tools selected for it into a Python program.
//
// A Writer asks a Model with the prompts of prompts/, extracts the program from the answer, and repairs a program that
// failed. Package rules writes programs without a model. Generate asks the Writer and falls back to the rules.
//
// The package runs nothing, selects nothing and does not know workspaces. Texts of tools, skills and failed programs
// are untrusted: they enter a prompt escaped and marked as data.
//
// Files: codegen.go (types), writer.go (attempts, budgets, fallback), prompt.go, extract.go (programs in answers),
// model.go (the seam to models), openai.go (chat completions), tokens.go.
package codegen
