package rules

import (
	"cmp"
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// grammarText has the words and the forms of the rules. A comment at its beginning explains the format.
//
//go:embed grammar.txt
var grammarText string

// grammar is the compiled grammarText.
type grammar struct {
	phrases    map[string]map[string]string // named sets of words and phrases, with their values in Python
	macros     map[string]string
	tools      map[string]toolKind
	forms      []*form
	vocabulary map[string]bool // the words of all patterns and phrases, and other words that rules know
}

// form is one kind of clause: its patterns, and what a clause that matches writes.
type form struct {
	name     string
	patterns [][]node
	actions  []action
}

// node is an item of a compiled pattern: words, alternatives or a slot.
type node struct {
	words        []string
	alternatives [][]node
	optional     bool // alternatives may be skipped
	slot, name   string
}

// theGrammar returns the grammar. It is compiled at the first call.
var theGrammar = sync.OnceValue(func() *grammar {
	g := &grammar{
		phrases: map[string]map[string]string{}, macros: map[string]string{}, tools: map[string]toolKind{},
		vocabulary: map[string]bool{},
	}
	var last *form
	for line := range strings.Lines(strings.ReplaceAll(grammarText, "\\\n", "")) {
		line = strings.TrimSpace(line)
		kind, rest, _ := strings.Cut(line, " ")
		name, list, _ := strings.Cut(rest, ": ")
		switch kind {
		case "", "#":
		case "words":
			g.addPhrases(name, strings.ReplaceAll(list, " ", ","))
		case "phrases":
			g.addPhrases(name, list)
			for phrase := range g.phrases[name] {
				g.know(strings.Fields(phrase))
			}
		case "macro":
			g.macros[name] = list
		case "tool":
			signature, fallback, _ := strings.Cut(list, " => ")
			g.tools[name] = toolKind{regexp.MustCompile(signature + "$"), fallback}
		case "form":
			last = &form{name: rest}
			g.forms = append(g.forms, last)
		case ">":
			parts := actionLine.FindStringSubmatch(rest)
			last.actions = append(last.actions, action{op: parts[1], name: parts[2], template: parts[3]})
		default:
			last.patterns = append(last.patterns, g.compile(line)...)
		}
	}
	return g
})

// know adds words to the vocabulary.
func (g *grammar) know(words []string) {
	for _, w := range words {
		g.vocabulary[w] = true
	}
}

// addPhrases adds phrases with their values, such as "above, over => >; below => <". Without "=>" a phrase is its own
// value.
func (g *grammar) addPhrases(name, list string) {
	g.phrases[name] = map[string]string{}
	for group := range strings.SplitSeq(list, ";") {
		keys, value, valued := strings.Cut(group, "=>")
		for phrase := range strings.SplitSeq(keys, ",") {
			phrase = strings.TrimSpace(phrase)
			g.phrases[name][phrase] = strings.TrimSpace(value)
			if !valued {
				g.phrases[name][phrase] = quote(phrase)
			}
		}
	}
}

// has reports whether tokens are a word or a phrase of a set.
func (g *grammar) has(set string, t ...token) bool {
	_, ok := g.phrase(set, t)
	return ok
}

const maxPhrase = 5 // words

// phrase returns the value of tokens that are a phrase of a set.
func (g *grammar) phrase(set string, t []token) (python string, ok bool) {
	var words []string
	for _, t := range t[:min(len(t), maxPhrase)] {
		words = append(words, t.lower)
	}
	python, ok = g.phrases[set][strings.Join(words, " ")]
	return python, ok && len(t) == len(words)
}

// prefix returns the value and the size of the longest phrase of a set with which tokens begin.
func (g *grammar) prefix(set string, t []token) (python string, size int) {
	size = longest(min(maxPhrase, len(t)), func(n int) bool { return g.has(set, t[:n]...) })
	python, _ = g.phrase(set, t[:size])
	return python, size
}

// longest returns the largest size up to a limit that fits, or 0.
func longest(limit int, fits func(size int) bool) int {
	for limit > 0 && !fits(limit) {
		limit--
	}
	return max(limit, 0)
}

// compile compiles a line of patterns.
func (g *grammar) compile(line string) [][]node {
	items := strings.Fields(line)
	return g.alternatives(&items, "")
}

// alternatives compiles the lists that "|" separates, up to the closing bracket, or up to the end if closing is empty.
// It removes their items.
func (g *grammar) alternatives(items *[]string, closing string) [][]node {
	out := [][]node{nil}
	for len(*items) > 0 {
		item := (*items)[0]
		*items = (*items)[1:]
		last := &out[len(out)-1]
		switch {
		case item == closing:
			return out
		case item == "|":
			out = append(out, nil)
		case item == "(" || item == "[":
			inner := g.alternatives(items, map[string]string{"(": ")", "[": "]"}[item])
			*last = append(*last, node{alternatives: inner, optional: item == "["})
		case g.macros[item] != "":
			*items = slices.Concat(strings.Fields("( "+g.macros[item]+" )"), *items)
		case item[0] == '{':
			slot, name, _ := strings.Cut(strings.Trim(item, "{}"), ":")
			*last = append(*last, node{slot: slot, name: cmp.Or(name, slot)})
		default:
			words := strings.Split(strings.TrimPrefix(item, `\`), "|")
			g.know(words)
			*last = append(*last, node{words: words})
		}
	}
	return out
}
