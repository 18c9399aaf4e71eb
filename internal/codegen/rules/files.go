package rules

import "strings"

var fileForms = []form{
	{"write file", re(`(?:write|create|save|make)(?: (?:a|an|the|new|test|text|file|to|in|called|named|at))*(?: ` +
		pathRe + `)? (?:with|containing|that (?:contains|says))(?: (?:the )?(?:contents?|text|words?` +
		`|string|data|line|message))?:? ` + quoteRe), func(p *planner, m []string, _ clause) bool {
		return p.writeFile(m[1], m[2], m[0])
	}},
	{
		"write file", re(`(?:write|save|store|put)(?: the)?(?: (?:text|contents?|string|words?|message))? ` + quoteRe +
			` (?:to|into|in)(?: (?:a|an|the|new|test|text|file|called|named))*(?: ` + pathRe + `)?`),
		func(p *planner, m []string, _ clause) bool {
			return p.writeFile(m[2], m[1], m[0])
		},
	},
	{"read file", re(`(?:read|open|load|show|display|print|get)(?: (?:the|contents?|text|of|from|file|in))* ` +
		pathRe), func(p *planner, m []string, _ clause) bool {
		p.path = p.pathOf(m[1])
		return p.readFile()
	}},
	{
		"read file",
		re(`read (?:it|the file|that file|the test file|its contents?|the contents?)(?: back)?(?: again)?`),
		func(p *planner, _ []string, _ clause) bool {
			return p.path != "" && p.readFile()
		},
	},
	{"list directory", re(`(?:list|show|display|print)(?: (?:all|the|contents?|files?` +
		`|everything|of|in|and|directory|directories|folder|entries))* ` + pathRe +
		`(?: (?:directory|folder))?( recursively)?`), func(p *planner, m []string, _ clause) bool {
		return p.listDirectory(p.pathOf(m[1]), m[2] != "")
	}},
	{"list directory", re(`(?:list|show|display)(?: (?:all|the|contents?|files?|of|in|my)` +
		`)* workspace(?: directory| folder| files)?( recursively)?`), func(p *planner, m []string, _ clause) bool {
		return p.listDirectory(quote("/workspace"), m[1] != "")
	}},
}

func (p *planner) writeFile(path, content, whole string) bool {
	switch {
	case path != "":
		p.path = p.pathOf(path)
	case strings.Contains(strings.ToLower(whole), "test file"):
		p.path = quote("/workspace/test.txt") // the task does not name the file
	default:
		return false
	}
	text, ok := p.value(content)
	if !ok {
		return false
	}
	if t := p.tool(func(t *tool) bool { return t.requires("path", "content") && t.named("write") }); t != nil {
		p.emit("%s", p.call(t, "path="+p.path, "content="+text))
	} else {
		p.modules["pathlib"] = true
		p.emit("pathlib.Path(%s).write_text(%s, encoding=\"utf-8\")", p.path, text)
	}
	p.emit("print(\"Wrote\", %s)", p.path)
	return true
}

func (p *planner) readFile() bool {
	p.text = p.fresh("content")
	if t := p.tool(func(t *tool) bool { return t.requires("path") && t.named("read") }); t != nil {
		p.helper("text_of")
		p.emit("%s = text_of(%s)", p.text, p.call(t, "path="+p.path))
	} else {
		p.modules["pathlib"] = true
		p.emit("%s = pathlib.Path(%s).read_text(encoding=\"utf-8\")", p.text, p.path)
	}
	p.output("content", p.text)
	return true
}

func (p *planner) listDirectory(path string, recursive bool) bool {
	t := p.tool(func(t *tool) bool { return t.requires("path") && t.named("list", "dir") })
	if t == nil {
		return false
	}
	arguments := []string{"path=" + path}
	if recursive {
		if !t.has("recursive") {
			return false
		}
		arguments = append(arguments, "recursive=True")
	}
	variable := p.fresh("listing")
	p.helper("show")
	p.emit("%s = %s", variable, p.call(t, arguments...))
	p.emit("show(%s, %s)", path, variable)
	p.record, p.several = variable, false
	p.output("listing", variable)
	return true
}
