package schemas

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/codefleet/codefleet/internal/violation"
)

// The validator collects every violation, with its place: a megabyte of empty objects in a list would take a gigabyte.
// So the documents that users write are measured first.
const (
	maxValues = 20_000 // values that the schema restricts; others, such as those in a task's inputs, do not count
	maxLevels = 64     // levels of lists and objects with such values
)

// userWritten are the schemas of documents that users write.
var userWritten = map[string]bool{TaskV1: true, WorkflowV1: true}

// measure returns the first place at which a document exceeds maxValues, maxLevels or the maximum size that its schema
// sets for a list or an object. It returns nil if there is none.
func measure(s *jsonschema.Schema, doc any) *Invalid {
	m := measurement{left: maxValues}
	return m.visit(s, doc)
}

type measurement struct {
	left int      // how many values may follow
	at   []string // the place of the current value
}

func (m *measurement) visit(s *jsonschema.Schema, v any) *Invalid {
	if m.left--; m.left < 0 {
		return m.violated(fmt.Sprintf("the document has more than %d values at and before this place", maxValues))
	}
	if len(m.at) > maxLevels {
		return m.violated(fmt.Sprintf("nested more than %d levels deep", maxLevels))
	}
	switch v := v.(type) {
	case []any:
		return m.list(s, v)
	case map[string]any:
		return m.object(s, v)
	}
	return nil
}

func (m *measurement) list(s *jsonschema.Schema, v []any) (found *Invalid) {
	if s.MaxItems != nil && len(v) > *s.MaxItems {
		return m.violated(violation.Describe(&kind.MaxItems{Got: len(v), Want: *s.MaxItems}))
	}
	for i := 0; s.Items2020 != nil && i < len(v) && found == nil; i++ {
		found = m.member(s.Items2020, strconv.Itoa(i), v[i])
	}
	if s.Ref != nil && found == nil {
		found = m.list(s.Ref, v)
	}
	return found
}

func (m *measurement) object(s *jsonschema.Schema, v map[string]any) (found *Invalid) {
	if s.MaxProperties != nil && len(v) > *s.MaxProperties {
		return m.violated(violation.Describe(&kind.MaxProperties{Got: len(v), Want: *s.MaxProperties}))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if member, ok := v[name]; ok && found == nil {
			found = m.member(s.Properties[name], name, member)
		}
	}
	if more, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if s.Properties[name] == nil && found == nil {
				found = m.member(more, name, v[name])
			}
		}
	}
	if s.Ref != nil && found == nil {
		found = m.object(s.Ref, v)
	}
	return found
}

func (m *measurement) member(s *jsonschema.Schema, name string, v any) *Invalid {
	m.at = append(m.at, name)
	found := m.visit(s, v)
	m.at = m.at[:len(m.at)-1]
	return found
}

func (m *measurement) violated(message string) *Invalid {
	return &Invalid{Path: pointer(m.at), Message: message}
}
