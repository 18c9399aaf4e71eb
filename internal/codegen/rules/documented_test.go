package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/sourcetest"
)

// TestDocumentedSentences checks that the rules write programs for the examples in docs/generation.md.
func TestDocumentedSentences(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(sourcetest.Root(t), "docs", "generation.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(data), "\n| about | for example |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	tools := append(shippedTools(), sample("crm", "find_customer", "name"))
	examples := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(table, -1)
	if len(examples) < 15 {
		t.Fatalf("docs/generation.md has %d examples of sentences, want the table", len(examples))
	}
	for _, m := range examples {
		if program, err := Write(codegen.Request{Task: m[1], Tools: tools}); err != nil || program.Code == "" {
			t.Errorf("Write(%q) = %q, %v, want a program", m[1], program.Code, err)
		}
	}
}
