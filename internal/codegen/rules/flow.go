package rules

import (
	"maps"
	"slices"
	"strings"
)

// condition reads "if …" with its branches: the rest of its sentence, and the sentence that begins with
// "otherwise".
func (w *writer) condition(m match) bool {
	c, subject, measured := w.clause, m["subject"].text, w.vars["number"]
	switch {
	case subject == "" && measured != "":
		subject = "result"
	case subject != "" && w.vars["record"] != "" && w.vars["several"] == "":
		python, _ := w.fill(`as_number(field($record, {"subject"}, "the tool's result"), {"subject"})`, m)
		measured = w.let("measured", python)
	default:
		return false
	}
	then, otherwise := w.branches(c, m["rest"].tokens)
	if len(then) == 0 || joinedByThen(then) || joinedByThen(otherwise) {
		return false // "if …, do this, then that": is "that" conditional?
	}
	label := strings.ToLower(subject + " " + m["compare"].text + " " + m["limit"].text)
	outcome := w.let("condition", measured+" "+m["compare"].py+" "+m["limit"].py)
	w.line("print(%s, %s, \"(\" + str(%s) + \")\")", quote(label+":"), outcome, measured)
	w.outputs = append(w.outputs, output{key: label, variable: outcome, condition: true})
	at, first := len(w.body), len(w.outputs)
	w.branch("if "+outcome+":", then)
	if inThen := len(w.outputs); len(otherwise) > 0 {
		for i := range w.outputs[first:] {
			w.outputs[first+i].elsewhere = true
		}
		w.branch("else:", otherwise)
		for i := first; i < inThen; i++ {
			w.outputs[i].elsewhere = false
		}
	}
	var none []string // the outputs of the branch that does not run
	for _, o := range w.outputs[first:] {
		none = append(none, strings.Repeat("    ", w.depth)+o.variable+" = None")
	}
	w.body = slices.Insert(w.body, at, none...)
	return true
}

// branches returns the clauses of a condition's two branches, and moves w.at past them. first is the part of the
// condition's own clause that belongs to the first branch.
func (w *writer) branches(c clause, first []token) (then, otherwise []clause) {
	if len(first) > 0 {
		then = append(then, clause{tokens: first, text: join(first), sentence: c.sentence})
	}
	to := &then
	for ; w.at < len(w.clauses); w.at++ {
		next := w.clauses[w.at]
		_, size := w.grammar.prefix("otherwise", next.tokens)
		if next.sentence != c.sentence && size == 0 {
			break
		}
		if size > 0 {
			to, c.sentence, next.tokens = &otherwise, next.sentence, tidy(next.tokens[size:])
			next.text = join(next.tokens)
		}
		if len(next.tokens) > 0 {
			*to = append(*to, next)
		}
	}
	return then, otherwise
}

// joinedByThen reports whether "then" joins clauses of a branch.
func joinedByThen(branch []clause) bool {
	return len(branch) > 1 && slices.ContainsFunc(branch[1:], func(c clause) bool { return c.then })
}

// branch reads clauses into an indented block. Variables of the block are unknown after it.
func (w *writer) branch(head string, clauses []clause) {
	w.save()
	vars, outer, at := w.vars, w.clauses, w.at
	w.line("%s", head)
	w.depth++
	start := len(w.body)
	w.vars = maps.Clone(vars)
	for w.clauses, w.at = clauses, 0; w.at < len(w.clauses); {
		w.step()
	}
	w.save()
	isCode := func(line string) bool { return !strings.HasPrefix(strings.TrimSpace(line), "#") }
	if !slices.ContainsFunc(w.body[start:], isCode) {
		w.line("pass")
	}
	w.vars, w.clauses, w.at = vars, outer, at
	w.depth--
}

// each reads a loop over numbers with one calculation, in which "it" is the number. The calculation is the rest of the
// clause, or else the next clause.
func (w *writer) each(m match) bool {
	body := w.loopBody(m)
	ambiguous := func(t token) bool { return w.grammar.has("results", t) } // each result, or an earlier one?
	listLike := func(t token) bool { return t.kind == number && strings.Contains(t.text, ",") }
	if body == nil || slices.ContainsFunc(body, ambiguous) || slices.ContainsFunc(m["numbers"].tokens, listLike) {
		return false
	}
	outputs, before, item, results := w.outputs, w.vars["number"], w.fresh("item"), w.let("results", "[]")
	w.line("for %s in [%s]:", item, m["numbers"].py)
	start := len(w.body)
	w.depth, w.vars["number"], w.outputs = w.depth+1, item, nil
	read := w.tryGroup("calculation", body)
	found := w.outputs
	w.depth, w.outputs, w.vars["number"] = w.depth-1, outputs, before
	if !read || len(found) != 1 {
		return false
	}
	w.body = slices.Concat(w.body[:start], slices.DeleteFunc(w.body[start:], func(line string) bool {
		return strings.HasPrefix(strings.TrimSpace(line), "print(")
	}))
	if !strings.Contains(strings.Join(w.body[start:], "\n"), item) {
		return false // the body does not use the number
	}
	w.line("    %s.append(%s)", results, found[0].variable)
	w.line("print(%s, %s)", quote(m["numbers"].py+":"), results)
	delete(w.vars, "number") // there are several now
	w.output("results", results)
	return true
}

// loopBody returns the request of a loop: the rest of the clause, "double it" for "double each of 1, 2", or the next
// clause. It returns nil if another clause of the sentence follows, because that may be meant for each or only once.
func (w *writer) loopBody(m match) []token {
	body, sentence := m["rest"].tokens, w.clause.sentence
	switch {
	case m["verb"].text != "":
		body = slices.Concat(m["verb"].tokens, []token{{kind: word, text: "it", lower: "it"}}, m["by"].tokens)
	case body == nil && w.at < len(w.clauses) && w.clauses[w.at].sentence == sentence:
		body = w.clauses[w.at].tokens
		w.at++
	}
	if w.at < len(w.clauses) && w.clauses[w.at].sentence == sentence {
		return nil
	}
	return body
}

// tryGroup reads tokens with the first form of a group that fits.
func (w *writer) tryGroup(group string, t []token) bool {
	return slices.ContainsFunc(w.grammar.forms, func(f *form) bool {
		return f.group == group && w.try(f, &matcher{w: w, tokens: t})
	})
}

// eachPlace reads the weather of each place: "get the weather for it".
func (w *writer) eachPlace(m match) bool {
	body := w.loopBody(m)
	at := slices.IndexFunc(body, func(t token) bool { return t.lower == "weather" || t.lower == "forecast" }) + 1
	if at == 0 || at < len(body) && !w.grammar.isPhrase("of-each", body[at:]) {
		return false
	}
	of := []token{{kind: word, text: "for", lower: "for"}}
	return w.tryGroup("weather", slices.Concat(body[:at], of, m["places"].tokens))
}

// bareWeather reports whether "weather" includes the forecast. It does not if a clause mentions the forecast, if a
// condition follows, or if the clause is in a branch of a condition.
func (w *writer) bareWeather() bool {
	follows := w.at < len(w.clauses) && w.clauses[w.at].tokens[0].lower == "if"
	return !follows && w.depth == 1 && !slices.ContainsFunc(w.clauses, func(c clause) bool {
		return slices.ContainsFunc(c.tokens, func(t token) bool { return t.lower == "forecast" })
	})
}

// cities lists the place of a clause and then the large cities.
func (w *writer) cities(m match) bool {
	names := []string{m["place"].py}
	for city := range strings.Lines(cityText) {
		if city = quote(strings.TrimSpace(city)); city != names[0] {
			names = append(names, city)
		}
	}
	m["cities"] = value{py: strings.Join(names, ", ")}
	return true
}
