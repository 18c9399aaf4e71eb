package rules

import (
	"cmp"
	"regexp"
	"strings"
)

const identifier = `([A-Za-z_]\w*)`

var databaseForms = []form{
	{
		"tables", re(`(?:list|show|get)(?: me)?(?: all)?(?: the)? tables(?: (?:in|of|from) (?:the )?database)?`),
		func(p *planner, _ []string, _ clause) bool {
			t := p.tool(func(t *tool) bool { return t.requires() && t.named("tables") })
			if t == nil {
				return false
			}
			variable := p.fresh("tables")
			p.helper("show")
			p.emit("%s = %s", variable, p.call(t))
			p.emit("show(\"Tables\", %s)", variable)
			p.output("tables", variable)
			return true
		},
	},
	{"sql", re(`(?:run|execute|query)(?: the)?(?: (?:sql|query|statement|database|with|on|following))*:? ⟦q(\d+)` +
		`⟧(?: (?:on|against|in) (?:the )?database)?`), func(p *planner, m []string, _ clause) bool {
		return p.sql("⟦q" + m[1] + "⟧")
	}},
	{"query", re(`(?:query|search|ask|read|load|get|fetch|select|retrieve)(?: from)?(?: the)?` +
		` database (?:for|to get|to find)(?: all)?(?: the| of the)? ` + identifier + `(?: table)?`), readTable},
	{"query", re(`(?:get|fetch|select|load|retrieve|query|list)(?: all)?(?: the)? ` + identifier +
		` (?:from|in|of) (?:the )?database`), readTable},
	{"filter", re(`(?:filter|keep)(?: (?:them|it|rows|for|by|only|to|the|those|users|records|who|which|that|` +
		`where|with|are|is))* ` + identifier +
		`(?: (?:ones|users|rows|records|items|entries|accounts|people|customers|products|orders))?`), readMarked},
	{
		"filter", re(`(?:filter|keep)(?: (?:them|it|rows|for|by|only|to|the|those|users|records|who|which|that|` +
			`where|with|are|have|a|an))* ` + identifier + ` (?:is |are |of )?` + comparison + ` (-?[\d.]+)`),
		func(p *planner, m []string, _ clause) bool {
			if p.rows == "" || !numeral.MatchString(m[3]) {
				return false
			}
			p.helper("field")
			p.keep("[row for row in %s if field(row, " + quote(strings.ToLower(m[1])) + ") " +
				cmp.Or(operators[strings.ToLower(m[2])], m[2]) + " " + m[3] + "]")
			return true
		},
	},
	{
		"statistics", re(`(?:calculate|compute|get|show|report)(?: (?:the|some|basic|summary|descriptive)` +
			`)* (?:statistics|stats)(?: (?:for|on|about|of) (?:them|it|the (?:result|rows|data|users)|these|those))?`),
		func(p *planner, _ []string, _ clause) bool {
			if p.rows == "" {
				return false
			}
			variable := p.fresh("statistics_found")
			p.helper("statistics_of", "show")
			p.emit("%s = statistics_of(%s)", variable, p.rows)
			p.emit("show(\"Statistics\", %s)", variable)
			p.record, p.several = variable, false
			p.output("statistics", variable)
			return true
		},
	},
	{
		"count", re(`(?:count|how many(?: are there)?)(?: (?:them|the|rows|users|records|results|items|all|of))*`),
		func(p *planner, _ []string, _ clause) bool {
			if p.rows == "" {
				return false
			}
			variable := p.fresh("count_found")
			p.emit("%s = len(%s)", variable, p.rows)
			p.emit("print(\"Count:\", %s)", variable)
			p.number = variable
			p.output("count", variable)
			return true
		},
	},
	{"sort", re(`(?:sort|order)(?: (?:them|the|rows|users|records|results|it))* by ` + identifier +
		`( descending| desc| in descending order)?`), func(p *planner, m []string, _ clause) bool {
		if p.rows == "" {
			return false
		}
		p.helper("field")
		reverse := ""
		if m[2] != "" {
			reverse = ", reverse=True"
		}
		p.keep("sorted(%s, key=lambda row: field(row, " + quote(strings.ToLower(m[1])) + ")" + reverse + ")")
		return true
	}},
	{
		"aggregate", re(calcVerb + ` (?:the )?(average|mean|sum|total|minimum|maximum|median)` +
			` (?:of (?:the |all |their )*)?` + identifier + `(?: (?:column|field))?`),
		func(p *planner, m []string, _ clause) bool {
			if p.rows == "" {
				return false
			}
			function := map[string]string{
				"average": "statistics.fmean", "mean": "statistics.fmean", "median": "statistics.median",
				"sum": "sum", "total": "sum", "minimum": "min", "maximum": "max",
			}[strings.ToLower(m[1])]
			if strings.HasPrefix(function, "statistics") {
				p.modules["statistics"] = true
			}
			variable := p.fresh("value")
			p.helper("field")
			p.emit("%s = %s([field(row, %s) for row in %s])", variable, function, quote(strings.ToLower(m[2])), p.rows)
			p.emit("print(%s, %s)", quote(m[1]+" of "+m[2]+":"), variable)
			p.number = variable
			p.output(strings.ToLower(m[1]+" "+m[2]), variable)
			return true
		},
	},
}

// notTables are words that may follow "database for" and do not name a table.
var notTables = wordSet(`all the any some active inactive new old that this it them data information records rows
everything me changes`)

func readTable(p *planner, m []string, _ clause) bool {
	t := p.queryTool()
	if t == nil || notTables[strings.ToLower(m[1])] {
		return false
	}
	table := strings.ToLower(m[1])
	p.rows = p.fresh(table + "_rows")
	p.helper("rows_of", "show")
	p.emit("%s = rows_of(%s)", p.rows, p.call(t, "sql="+quote("SELECT * FROM "+table)))
	p.emit("print(%s, len(%s))", quote("Rows of "+table+":"), p.rows)
	p.output(table, p.rows)
	return true
}

func (p *planner) queryTool() *tool {
	return p.tool(func(t *tool) bool { return t.requires("sql") && t.named("query", "select", "read") })
}

// sql runs a statement of the task unchanged, with the query tool if it only reads and otherwise with the execute tool.
func (p *planner) sql(m string) bool {
	_, statement, ok := p.lits.text(m)
	if !ok {
		return false
	}
	reads := regexp.MustCompile(`(?i)^\s*(?:select|with)\b`).MatchString(statement)
	t := p.queryTool()
	if !reads {
		t = p.tool(func(t *tool) bool { return t.requires("sql") && t.named("exec", "write", "update") })
	}
	if t == nil || !regexp.MustCompile(`(?i)^\s*(?:select|with|insert|update|delete|create|drop|alter)`+
		`\b`).MatchString(statement) {
		return false
	}
	if !reads {
		variable := p.fresh("outcome")
		p.helper("show")
		p.emit("%s = %s", variable, p.call(t, "sql="+quote(statement)))
		p.emit("show(\"Executed\", %s)", variable)
		p.output("outcome", variable)
		return true
	}
	p.rows = p.fresh("rows")
	p.helper("rows_of", "show")
	p.emit("%s = rows_of(%s)", p.rows, p.call(t, "sql="+quote(statement)))
	p.emit("show(\"Rows\", %s)", p.rows)
	p.output("rows", p.rows)
	return true
}

func readMarked(p *planner, m []string, _ clause) bool {
	word := strings.ToLower(m[1])
	if p.rows == "" || vague[word] || smallWords[word] {
		return false
	}
	p.helper("marked")
	p.keep("marked(%s, " + quote(word) + ")")
	return true
}

// keep replaces the rows, also in the result, by the value of an expression. %s in the expression stands for the rows.
func (p *planner) keep(expression string) {
	old := p.rows
	p.rows = p.fresh("kept")
	p.emit("%s = %s", p.rows, strings.Replace(expression, "%s", old, 1))
	p.emit("print(\"Rows kept:\", len(%s), \"of\", len(%s))", p.rows, old)
	for i := range p.outputs {
		if p.outputs[i].variable == old {
			p.outputs[i].variable = p.rows
		}
	}
}
