package selection

import (
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/selection/terms"
)

// Finding is a tool that is hard to find, with the reason.
type Finding struct {
	ID      string   `json:"id"`
	Problem string   `json:"problem"`
	Rivals  []string `json:"rivals,omitempty"` // the tools that a search for its description finds
}

// lintDepth is the number of results of a search for a tool's description that must include the tool.
const lintDepth = 5

// Lint searches for each tool by the first sentence of its description. It returns the tools that are not among the
// first five results and those without a description, sorted by server and name. It takes one query for each tool.
func (s *Index) Lint() []Finding {
	findings := []Finding{}
	for i := range s.tools {
		t := &s.tools[i]
		switch described := len(terms.Document(t.Description)) > 0; {
		case !described && len(terms.Document(t.Name)) == 0:
			problem := "neither its name nor its description has a word to search for"
			findings = append(findings, Finding{ID: t.ID(), Problem: problem})
		case !described:
			findings = append(findings, Finding{ID: t.ID(), Problem: "it has no description"})
		default:
			ranked := s.Ranked(firstSentence(t.Description), nil, lintDepth)
			if !slices.Contains(ranked, t.ID()) {
				problem := fmt.Sprintf("its own description does not find it among the first %d", lintDepth)
				findings = append(findings, Finding{ID: t.ID(), Rivals: ranked, Problem: problem})
			}
		}
	}
	return findings
}
