package selection

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/selection/terms"
)

// operations is a set of the operations create, read, update and delete. It is empty if the operation is unknown.
type operations uint8

//go:embed operations.txt
var operationText string

// operationTable maps the stem of a word to its operations. It is parsed at its first use.
var operationTable = sync.OnceValue(func() map[string]operations {
	table := map[string]operations{}
	bit := operations(1)
	for line := range strings.Lines(operationText) {
		_, words, ok := strings.Cut(line, ": ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		for word := range strings.FieldsSeq(words) {
			table[terms.Stem(word)] |= bit
		}
		bit <<= 1
	}
	return table
})

// conflictsWith reports whether both sets are known and have no operation in common.
func (o operations) conflictsWith(other operations) bool { return o != 0 && other != 0 && o&other == 0 }

// toolOperations returns the operations of a tool: the first operation in its name, and the one at the end of its name,
// because "search" is a verb in search_index and a noun in search_index_delete. If the name has no operation, the first
// word of the description may have one.
func toolOperations(t *Tool) operations {
	table := operationTable()
	words := terms.Words(t.Name)
	found := operations(0)
	if i := slices.IndexFunc(words, func(w string) bool { return table[terms.Stem(w)] != 0 }); i >= 0 {
		found = table[terms.Stem(words[i])] | table[terms.Stem(words[len(words)-1])]
		for ; i+2 < len(words) && words[i+1] == "or"; i += 2 { // create_or_update
			found |= table[terms.Stem(words[i+2])]
		}
		return found
	}
	first, _, _ := strings.Cut(strings.TrimSpace(t.Description), " ")
	for _, w := range terms.Words(first) {
		found |= table[terms.Stem(w)]
	}
	return found
}

// subject returns the terms of a tool's name that are not operations, or all terms if every term is one.
func subject(name []string) []string {
	isOperation := func(term string) bool { return operationTable()[term] != 0 }
	if rest := slices.DeleteFunc(slices.Clone(name), isOperation); len(rest) > 0 {
		return rest
	}
	return name
}

// operationsOf returns the operations that a sentence requests. A word counts only where a verb stands: at the
// beginning of a clause, or after words such as "to" and "please". In "a list", "the update" and "my post"
// it is a noun. If the operation of one clause is unknown, so is the operation of the sentence.
func operationsOf(sentence string) operations {
	table := operationTable()
	all := operations(0)
	ends := func(r rune) bool { return strings.ContainsRune(".;!?\n,:", r) }
	for part := range strings.FieldsFuncSeq(terms.Literals(sentence), ends) {
		words := terms.Words(part)
		found := operations(0)
		verb := true // whether a verb may stand here
		for i, w := range words {
			if w == "look" && i+1 < len(words) && words[i+1] == "up" {
				w = "lookup"
			}
			if o := table[terms.Stem(w)]; verb && o != 0 {
				found |= o
			}
			verb = beforeVerb()[w]
		}
		if len(words) > 0 && found == 0 {
			return 0
		}
		all |= found
	}
	return all
}

// beforeVerb are words that a verb of a request may follow.
var beforeVerb = sync.OnceValue(func() map[string]bool {
	const words = "to and or then please can could will would should must also just i we you me us let lets help now " +
		"first next finally kindly"
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
})
