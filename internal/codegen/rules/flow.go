package rules

import (
	"maps"
	"slices"
	"strings"
)

// condition reads the branches of a condition, the last variable: the rest of its sentence, and the sentence that
// begins with "otherwise". rest is the part of the condition's own clause that belongs to the first branch.
func (w *writer) condition(label string, rest []token) bool {
	then, otherwise := w.branches(rest)
	if len(then) == 0 {
		return false
	}
	outcome := w.last
	w.output(label, outcome)
	w.save()
	known := maps.Clone(w.vars)
	thenLines, found := w.branch(then, known)
	otherwiseLines, more := w.branch(otherwise, known)
	w.vars = known
	for _, o := range append(found, more...) { // those of the branch that does not run
		w.line("%s = None", o.variable)
		o.clause = w.at
		w.outputs = append(w.outputs, o)
	}
	w.line("if %s:", outcome)
	w.body = append(w.body, thenLines...)
	if len(otherwise) > 0 {
		w.line("else:")
		w.body = append(w.body, otherwiseLines...)
	}
	return true
}

// branches returns the clauses of a condition's branches, and moves w.at past them. There are none if "then" joins
// clauses of a branch: in "if …, do this, then that", is "that" conditional? There are none either if the branch after
// "otherwise" is the longer one: in "otherwise do this, and that", "that" need not be conditional; nor if a branch has
// a condition, which need not depend on the first one.
func (w *writer) branches(rest []token) (then, otherwise []clause) {
	if len(rest) > 0 {
		then = []clause{{tokens: rest, text: join(rest)}}
	}
	to, sentence := &then, w.clause.sentence
	for ; w.at < len(w.clauses); w.at++ {
		next := w.clauses[w.at]
		_, size := w.grammar.prefix("otherwise", next.tokens)
		if size > 0 {
			to, sentence, next.tokens = &otherwise, next.sentence, tidy(next.tokens[size:])
			next.text = join(next.tokens)
		} else if next.sentence != sentence {
			break
		}
		if len(next.tokens) > 0 && next.tokens[0].lower == "if" || next.then && len(*to) > 0 {
			return nil, nil
		}
		if len(next.tokens) > 0 {
			*to = append(*to, next)
		}
	}
	if len(otherwise) > max(1, len(then)) || len(rest) > 0 && rest[0].lower == "if" {
		return nil, nil
	}
	return then, otherwise
}

// branch reads clauses into an indented block, and returns it with its outputs. It removes from known the variables
// that the block changes: after it, they depend on the condition.
func (w *writer) branch(clauses []clause, known map[string]string) (lines []string, found []output) {
	outer := *w
	w.vars, w.clauses, w.at, w.body = maps.Clone(w.vars), clauses, 0, nil
	w.depth++
	for w.at < len(w.clauses) {
		w.step()
	}
	w.save()
	isCode := func(line string) bool { return !strings.HasPrefix(strings.TrimSpace(line), "#") }
	if !slices.ContainsFunc(w.body, isCode) {
		w.line("pass")
	}
	lines, found = w.body, slices.Clone(w.outputs[len(outer.outputs):])
	maps.DeleteFunc(known, func(name, python string) bool { return w.vars[name] != python })
	w.vars, w.clauses, w.at, w.body = outer.vars, outer.clauses, outer.at, outer.body
	w.depth, w.outputs = outer.depth, outer.outputs
	return lines, found
}

// each writes a loop over numbers with one calculation, in which "it" is the number, and makes the list of results the
// last variable. "double each of 1, 2" means "double it".
func (w *writer) each(m match) bool {
	calculation := m["rest"].tokens
	if m["verb"].text != "" {
		end := m["verb"].tokens[len(m["verb"].tokens)-1].end
		it := token{text: "it", lower: "it", start: end, end: end}
		calculation = slices.Concat(m["verb"].tokens, []token{it}, m["by"].tokens)
	}
	ambiguous := func(t token) bool { return w.grammar.has("results", t) } // each result, or an earlier one?
	listLike := func(t token) bool { return t.kind == number && strings.Contains(t.text, ",") }
	if slices.ContainsFunc(calculation, ambiguous) || slices.ContainsFunc(m["numbers"].tokens, listLike) {
		return false
	}
	item, results := w.fresh("item"), w.let("results", "[]")
	w.line("for %s in [%s]:", item, m["numbers"].py)
	inner := *w
	inner.vars, inner.outputs, inner.body, inner.depth = map[string]string{"number": item}, nil, nil, w.depth+1
	if inner.write("calculation", &matcher{w: &inner, tokens: calculation}) == nil ||
		!strings.Contains(inner.body[0], item) {
		return false
	}
	w.names, w.imports = inner.names, inner.imports
	w.body = append(w.body, slices.Delete(inner.body, 1, 2)...) // without the line that prints
	w.line("    %s.append(%s)", results, inner.last)
	return true
}
