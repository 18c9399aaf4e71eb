// Package codegen turns a task and the tools selected for it into a Python program.
//
// Two writers exist. WriteRules plans without a model: it reads quantities, places, paths, queries and JSON fields
// out of the sentence, and writes a program only if it understood every clause; otherwise *CodeRequiredError says what it
// understood and what not. It never guesses a value. A Writer asks a Model with the prompts of prompts/, takes the
// program out of the answer, and repairs a program that failed. Generate tries the model and falls back to the rules.
//
// What it is not: it runs nothing, selects nothing and knows no workspace. Text of tools, skills and failed programs is
// untrusted and goes into a prompt escaped and marked as data.
//
// Where things are: split.go (clauses and literals), arith.go (expressions), plan.go (the planner), forms*.go (what it
// understands, one table), python.go (Python text and helpers); prompt.go, writer.go, extract.go, model.go, openai.go,
// tokens.go (the model's side).
package codegen
