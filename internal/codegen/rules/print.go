package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

var printForms = []form{
	{
		"print", re(`(?:print|show|display|report|output|return|give me|tell me) (?:out )?(?:a |an |the )?` +
			`(?:(?:short |brief |success )?(?:confirmation|success)(?: message)?)(?: (?:that|when|once|of|if) .+)?`),
		func(p *planner, _ []string, _ clause) bool {
			if p.file == "" && p.path == "" {
				return false
			}
			if p.dirty {
				p.saveDocument()
			}
			p.emit("print(\"Done:\", %s)", cmp.Or(p.file, p.path))
			return true
		},
	},
	{"print", re(`(?:print|show|display|report|output|return|summari[sz]e)(?: out)?` +
		` (?:a |an |the |its |all |that |this )*(?:current |completed? |updated?` +
		` |final |brief |short )*(?:summary|state|status|contents?|results?` +
		`|data|it|answer|statistics|workflow|file|output|value|number)(?: (?:of|from|in)` +
		` (?:the |all |its )?(?:[a-z]+ )?(?:file|state|workflow|results?|data|document|content))?` +
		`(?: \([^)]*\))?`), readPrint},
}

func readPrint(p *planner, m []string, _ clause) bool {
	subject := strings.ToLower(m[0])
	switch {
	case p.doc != "" && p.text == "":
		p.helper("show")
		p.emit("show(\"State\", %s)", p.doc)
	case p.text != "" && !strings.Contains(subject, "state"):
		p.emit("print(%s)", p.text)
	case p.number != "":
		p.emit("print(%s)", p.number)
	case len(p.outputs) > 0:
		p.helper("show")
		last := p.outputs[len(p.outputs)-1]
		p.emit("show(%s, %s)", quote(last.key), last.variable)
	default:
		return false
	}
	return true
}

var schemaForms = []form{{"tool", re(`.+`), readSchema}}

var (
	wordPattern = regexp.MustCompile(`[A-Za-z]+`)
	smallWords  = wordSet(`a an the of for to in on at with and my me all please current it is`)
)

// readSchema reads "verb noun [parameter value]…" for any tool with that name. Every word of the clause must belong to
// the name, to a parameter or to a value, and every required parameter must have a value.
func readSchema(p *planner, _ []string, c clause) bool {
	for _, t := range p.tools {
		arguments, rest, ok := p.arguments(t, c.text)
		if !ok || !sameWords(rest, t) {
			continue
		}
		variable := p.fresh("answer")
		p.helper("show")
		p.emit("%s = %s", variable, p.call(t, arguments...))
		p.emit("show(%s, %s)", quote(t.Name), variable)
		p.record, p.several = variable, false
		p.output(t.Name, variable)
		return true
	}
	return false
}

// arguments returns a clause's "parameter value" pairs as Python arguments, and the rest of the clause. It returns
// false if a required parameter is missing, a value is not understood, or a value is left over.
func (p *planner) arguments(t *tool, text string) (arguments []string, rest string, ok bool) {
	rest = text
	for _, param := range t.Params {
		pattern := regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(regexp.QuoteMeta(param.Name), "_", "[_ ]") +
			`\s*(?:[:=]|is|as)?\s*(⟦[qjp]\d+⟧|-?\d+(?:\.\d+)?)`)
		m := pattern.FindStringSubmatchIndex(rest)
		if m == nil {
			if param.Required {
				return nil, "", false
			}
			continue
		}
		value, understood := p.value(rest[m[2]:m[3]])
		if !understood || len(param.Enum) > 0 && !slices.Contains(param.Enum, strings.Trim(value, `"`)) {
			return nil, "", false
		}
		arguments = append(arguments, param.Name+"="+value)
		rest = rest[:m[0]] + rest[m[1]:]
	}
	return arguments, rest, !strings.ContainsAny(rest, "⟦0123456789")
}

// sameWords reports whether a clause consists of the words in the tool's name, not counting small words.
func sameWords(clause string, t *tool) bool {
	words := func(s string) []string {
		var out []string
		for _, w := range wordPattern.FindAllString(strings.ToLower(s), -1) {
			if !smallWords[w] && w != strings.ToLower(t.Server) {
				out = append(out, strings.TrimSuffix(w, "s"))
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	name := words(strings.ReplaceAll(t.Name, "_", " "))
	return len(name) > 0 && slices.Equal(name, words(clause))
}
