package selection

import (
	"fmt"

	"github.com/codefleet/codefleet/internal/selection/text"
)

// Finding is a tool that users will hardly find, and why.
type Finding struct {
	ID      string   `json:"id"`
	Problem string   `json:"problem"`
	Rivals  []string `json:"rivals,omitempty"` // the tools that its own description finds first
}

// lintDepth is how far down a tool may stand for its own description.
const lintDepth = 5

// Lint asks for every tool by its own description (its name when it has none) and returns those that do not come back
// among the first five, and those without any words. Order: by id. It costs one query a tool.
func (s *Snapshot) Lint() []Finding {
	findings := []Finding{}
	for i := range s.tools {
		t := &s.tools[i]
		question := firstSentence(t.Description)
		switch {
		case len(text.Document(t.Description)) == 0 && len(text.Document(t.Name)) == 0:
			findings = append(findings, Finding{ID: t.ID(), Problem: "neither its name nor its description has a word to search for"})
			continue
		case len(text.Document(t.Description)) == 0:
			findings = append(findings, Finding{ID: t.ID(), Problem: "it has no description"})
			continue
		}
		ranked := s.Ranked(question, nil, lintDepth)
		found := false
		for _, id := range ranked {
			found = found || id == t.ID()
		}
		if !found {
			findings = append(findings, Finding{
				ID: t.ID(), Rivals: ranked,
				Problem: fmt.Sprintf("its own description does not find it among the first %d", lintDepth),
			})
		}
	}
	return findings
}
