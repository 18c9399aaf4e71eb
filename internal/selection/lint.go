package selection

import (
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/selection/terms"
)

// Finding is a tool that a search hardly finds, with the reason.
type Finding struct {
	ID      string   `json:"id"`
	Problem string   `json:"problem"`
	Rivals  []string `json:"rivals,omitempty"` // the tools that its description finds first
}

// lintDepth is the lowest rank that a tool may have for its own description.
const lintDepth = 5

// Lint searches for every tool by its own description and returns, by id, those that are not among the first five and
// those without a description. It costs one query a tool.
func (s *Index) Lint() []Finding {
	findings := []Finding{}
	for i := range s.tools {
		t := &s.tools[i]
		question := firstSentence(t.Description)
		switch {
		case len(terms.Document(t.Description)) == 0 && len(terms.Document(t.Name)) == 0:
			problem := "neither its name nor its description has a word to search for"
			findings = append(findings, Finding{ID: t.ID(), Problem: problem})
			continue
		case len(terms.Document(t.Description)) == 0:
			findings = append(findings, Finding{ID: t.ID(), Problem: "it has no description"})
			continue
		}
		ranked := s.Ranked(question, nil, lintDepth)
		if !slices.Contains(ranked, t.ID()) {
			findings = append(findings, Finding{
				ID: t.ID(), Rivals: ranked,
				Problem: fmt.Sprintf("its own description does not find it among the first %d", lintDepth),
			})
		}
	}
	return findings
}
