package mcp

import "testing"

func TestRedact(t *testing.T) {
	t.Parallel()
	r := newRedactor(Server{
		URL: "https://h.example/mcp?key=in%2Dquery", Headers: map[string]string{"A": "Bearer in\\header"},
		Env: map[string]string{
			"DSN": "redis://u:p%4024681012@h/0", "MYSQL": "root:in-my=sql@tcp(h)/db", "ODBC": "Server=h;Pwd=in-odbc-1;",
			"HOOK": "https://hooks.example/x?sig=in-hook-1", "PGUSER": "postgres://postgres@h/db", "SHORT": `a\u0062c\u0064`,
		},
	})
	for in, want := range map[string]string{
		"p@24681012, p%4024681012, p\\u004024681012": "(hidden), (hidden), (hidden)",
		"in-my=sql in-odbc-1 in-hook-1 in-query":     "(hidden) (hidden) (hidden) (hidden)",
		`"in\\header" in\header in\\\\header`:        `"(hidden)" (hidden) (hidden)`,
		`line\nin-odbc-1 \u00e9 %ZZ &x; abcd`:        `line\n(hidden) \u00e9 %ZZ &x; abcd`,
		"postgres https://h.example/mcp":             "postgres https://h.example/mcp",
		`"https:\/\/h.example\/mcp?key=in%2dquery"`:  `"https://h.example"`,
		"in-odbc-in-odbc-1in-my=sql":                 "in-odbc-(hidden)(hidden)",
	} {
		if got := r.redact(in); got != want {
			t.Errorf("redact(%s) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{
		`see in\u002dodbc\u00`: "see ", `see p%2540`: "see ", `see \u0069n\\`: "see ", "nothing": "nothing",
	} {
		if got := r.excerpt(in+"-1", len(in)); got != want {
			t.Errorf("excerpt(%s) = %s, want %s", in, got, want)
		}
	}
}
