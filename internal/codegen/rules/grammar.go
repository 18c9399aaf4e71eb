package rules

import (
	_ "embed"
	"fmt"
	"maps"
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
	sets       map[string]map[string]bool   // named sets of words
	phrases    map[string]map[string]string // named sets of phrases, with their values in Python
	macros     map[string]string
	tools      map[string]toolKind
	forms      []*form
	pair       []node          // "session to 2"
	vocabulary map[string]bool // the words of all patterns and phrases, and the set "known"
}

// form is one kind of clause: its patterns, and what a clause that matches writes.
type form struct {
	name, group string // group is calculation, weather or empty
	patterns    [][]node
	actions     []action
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
		sets: map[string]map[string]bool{}, phrases: map[string]map[string]string{}, macros: map[string]string{},
		tools: map[string]toolKind{}, vocabulary: map[string]bool{},
	}
	text := strings.ReplaceAll(grammarText, "\\\n", "")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		kind, rest, _ := strings.Cut(line, " ")
		name, rest, _ := strings.Cut(rest, ": ")
		switch {
		case line == "" || kind == "#":
		case kind == "words":
			g.sets[name] = wordSet(rest)
		case kind == "phrases":
			g.addPhrases(name, rest)
		case kind == "macro":
			g.macros[name] = rest
		case kind == "tool":
			parts := strings.Split(rest+"/", "/")
			g.tools[name] = toolKind{
				words: strings.Fields(parts[0]), params: strings.Fields(parts[1]),
				fallback: strings.TrimSpace(parts[2]),
			}
		case kind == "form":
			name, group, _ := strings.Cut(strings.TrimPrefix(line, "form "), " @")
			g.forms = append(g.forms, &form{name: name, group: group})
		default:
			last := g.forms[len(g.forms)-1]
			if kind == ">" {
				last.actions = append(last.actions, parseAction(line[2:]))
				continue
			}
			c := compiler{g, strings.Fields(line)}
			if last.name == "pair" {
				g.pair = []node{{alternatives: c.alternatives("")}}
				continue
			}
			last.patterns = append(last.patterns, c.alternatives("")...)
		}
	}
	maps.Copy(g.vocabulary, g.sets["known"])
	return g
})

func wordSet(s string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		set[w] = true
	}
	return set
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
			maps.Copy(g.vocabulary, wordSet(phrase))
		}
	}
}

// compiler compiles one line of patterns.
type compiler struct {
	g     *grammar
	items []string // what is not compiled yet
}

// alternatives compiles the lists that "|" separates, up to the closing bracket, or up to the end if closing is empty.
func (c *compiler) alternatives(closing string) [][]node {
	out := [][]node{nil}
	for len(c.items) > 0 {
		item := c.items[0]
		c.items = c.items[1:]
		last := &out[len(out)-1]
		switch {
		case item == closing:
			return out
		case item == "|":
			out = append(out, nil)
		case item == "(" || item == "[":
			inner := c.alternatives(map[string]string{"(": ")", "[": "]"}[item])
			*last = append(*last, node{alternatives: inner, optional: item == "["})
		case c.g.macros[item] != "":
			c.items = slices.Concat(strings.Fields("( "+c.g.macros[item]+" )"), c.items)
		case item[0] == '{':
			slot, name, named := strings.Cut(strings.Trim(item, "{}"), ":")
			if !named {
				name = slot
			}
			if slots[slot] == nil && c.g.phrases[slot] == nil && slot != "pairs" {
				panic(fmt.Sprintf("grammar.txt: unknown slot %q", slot))
			}
			*last = append(*last, node{slot: slot, name: name})
		default:
			words := strings.Split(strings.TrimPrefix(item, `\`), "|")
			maps.Copy(c.g.vocabulary, wordSet(strings.Join(words, " ")))
			*last = append(*last, node{words: words})
		}
	}
	return out
}
