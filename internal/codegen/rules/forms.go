package rules

import (
	"regexp"
	"slices"
	"sync"
)

// form is one kind of clause. read emits the Python of a clause that matches pattern. It must use every value in the
// clause, and returns false if it cannot.
type form struct {
	name    string
	pattern func() *regexp.Regexp
	read    func(p *planner, m []string, c clause) bool
}

// re returns a pattern that matches a whole clause. It is compiled at its first use, since compiling all of them takes
// 5 ms.
func re(s string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^` + s + `$`) })
}

const (
	markRe  = `(⟦[qjp]\d+⟧)`
	pathRe  = `(⟦p\d+⟧)`
	quoteRe = `(⟦q\d+⟧)`
	docNoun = `(?:the |that |this )?(?:current |updated?` +
		` |final |modified |workflow |json |whole |entire |saved )*(?:state|contents?` +
		`|file|document|data|json|workflow|it)(?: file| data)?`
	session = `(?: that was saved)?(?: in| from)?(?: (?:the|a|an))?(?: (?:previous|earlier|last)` +
		` (?:session|run|task))?`
	calcVerb = `(?:calculate|compute|evaluate|what is|what's|how much is|work out|solve|do)`
)

// allForms returns the forms in the order in which they are tried. The first one that reads a clause wins.
func allForms() []form {
	return slices.Concat(stateForms, documentForms, fileForms, skillForms, weatherForms, databaseForms,
		conditionForms, dateForms, eachForms, numberForms, printForms, schemaForms)
}
