package rules

import (
	"regexp"
	"slices"
	"sync"
)

// form is one kind of clause. read emits its program and returns false when the clause does not fit after all; it must
// take every value of the clause into account.
type form struct {
	name    string
	pattern func() *regexp.Regexp
	read    func(p *planner, m []string, c clause) bool
}

// re compiles a pattern of a whole clause when it is first asked for: all of them take 5 ms, which every
// start of a program would pay.
func re(s string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^` + s + `$`) })
}

const (
	markRe   = `(⟦[qjp]\d+⟧)`
	pathRe   = `(⟦p\d+⟧)`
	quoteRe  = `(⟦q\d+⟧)`
	docNoun  = `(?:the |that |this )?(?:current |updated? |final |modified |workflow |json |whole |entire |saved )*(?:state|contents?|file|document|data|json|workflow|it)(?: file| data)?`
	session  = `(?: that was saved)?(?: in| from)?(?: (?:the|a|an))?(?: (?:previous|earlier|last) (?:session|run|task))?`
	calcVerb = `(?:calculate|compute|evaluate|what is|what's|how much is|work out|solve|do)`
)

// allForms returns the forms in the order in which they are tried; the first that reads a clause wins.
func allForms() []form {
	return slices.Concat(stateForms, documentForms, fileForms, skillForms, weatherForms, databaseForms, conditionForms, dateForms, eachForms, numberForms, printForms, schemaForms)
}
