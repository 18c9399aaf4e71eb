// Package codegen turns a task and the tools selected for it into a Python program.
//
// A Writer sends a Model the prompts of prompts/, extracts the program from the response, and has the model repair a
// program that failed. Package rules writes programs without a model. Generate asks the Writer and falls back to the
// rules.
//
// The package runs no programs, selects no tools and does not know workspaces. Tool descriptions and failed programs
// are untrusted: they enter a prompt escaped and marked as data.
//
// Files: codegen.go (types), writer.go (attempts, budgets, fallback), prompt.go, extract.go (the program in a
// response), model.go (the Model interface), openai.go (chat completions), tokens.go.
package codegen
