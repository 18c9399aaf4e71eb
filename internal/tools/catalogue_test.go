package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/codefleet/codefleet/internal/pythontest"
	"github.com/codefleet/codefleet/internal/tools"
)

func write(tb testing.TB, dir, name, text string) {
	tb.Helper()
	at := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := tools.WriteFile(at, []byte(text)); err != nil {
		tb.Fatal(err)
	}
}

func read(tb testing.TB, c *tools.Catalogue) *tools.Listing {
	tb.Helper()
	s, err := c.Read(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func ids(s *tools.Listing) []string {
	var out []string
	for _, tool := range s.Tools {
		out = append(out, tool.ID())
	}
	return out
}

func TestReadFollowsTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "servers")
	c := tools.OpenCatalogue(dir, tools.Options{})
	if got := read(t, c); len(got.Tools) != 0 {
		t.Errorf("Read of a missing directory = %v, want no tools", ids(got))
	}
	write(t, dir, "mine/hello.py",
		"def hello(name: str) -> str:\n    \"\"\"Greets.\n\n    Warmly.\n    \"\"\"\n    return name\n")
	write(t, dir, "mine/_helper.py", "def x(): pass\n")
	write(t, dir, "mine/__init__.py", "")
	write(t, dir, "README.md", "hi")
	first := read(t, c)
	want := []tools.Tool{{
		Server: "mine", Name: "hello", State: tools.Local, Module: "servers.mine.hello", Function: "hello",
		Signature: "hello(name: str) -> str", Doc: "Greets.\n\nWarmly.", Description: "Greets.\n\nWarmly.",
		Path: "mine/hello.py",
	}}
	if diff := cmp.Diff(want, first.Tools, cmpopts.IgnoreUnexported(tools.Tool{})); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if first.Tools[0].Import() != "from servers.mine import hello" || first.Tools[0].Summary() != "Greets." {
		t.Errorf("Import = %q, Summary = %q, want the import of hello and its docstring",
			first.Tools[0].Import(), first.Tools[0].Summary())
	}
	if read(t, c) != first {
		t.Error("Read of unchanged files returned another listing, want the same")
	}
	write(t, dir, "mine/second.py", "def second(): 'Two.'\n")
	write(t, dir, "other/third.py", "async def third(*, a: int = 1): pass\n")
	if got := ids(read(t, c)); !cmp.Equal(got, []string{"mine/hello", "mine/second", "other/third"}) {
		t.Errorf("tools after two new files = %v, want three", got)
	}
	write(t, dir, "mine/second.py", "def second(): 'Too.'\n") // the same size, and perhaps the same modification time
	if got := read(t, c).Tools[1].Doc; got != "Too." {
		t.Errorf("Doc of a changed file of the same size = %q, want the new one", got)
	}
	if err := os.RemoveAll(filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	if got := ids(read(t, c)); !cmp.Equal(got, []string{"mine/hello", "mine/second"}) {
		t.Errorf("tools after a server was removed = %v, want two", got)
	}
	if len(first.Tools) != 1 {
		t.Error("a later Read changed an earlier listing, want it unchanged")
	}
}

func TestBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret.py")
	write(t, filepath.Dir(outside), "secret.py", "def secret(): pass\n")
	for name, text := range map[string]string{
		"s/good.py":       "def good(): pass\n",
		"s/bracket.py":    "x = 1\ndef bracket(a:\n    return a\n",
		"s/string.py":     "def string():\n    return 'x\n",
		"s/triple.py":     "def triple():\n    \"\"\"never\n",
		"s/nothing.py":    "x = 1\n",
		"s/nocolon.py":    "def nocolon()\n    pass\n",
		"s/expr.py":       "def expr():\n    return 1 +\n",
		"s/indent.py":     "def indent():\nreturn 1\n",
		"s/not-a-name.py": "def f(): pass\n",
		"s/nul.py":        "def nul(): pass\x00\n",
		"s/latin.py":      "# \xe9\ndef latin(): pass\n",
		"s/big.py":        strings.Repeat("#", 1<<20) + "\n#",
		"s/mismatch.py":   "def mismatch():\n    return (1]\n",
		"bad-server/f.py": "def f(): pass\n",
		"class/f.py":      "def f(): pass\n",
		"misplaced.py":    "def misplaced(): pass\n",
		"__init__.py":     "",
		"notes.txt":       "",
	} {
		write(t, dir, name, text)
	}
	for link, target := range map[string]string{"s/link.py": outside, "linked": filepath.Dir(outside)} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	lines := map[string]int{
		"s/bracket.py": 2, "s/string.py": 2, "s/triple.py": 2, "s/nothing.py": 0, "s/nocolon.py": 1,
		"s/not-a-name.py": 0,
		"s/nul.py":        0, "s/latin.py": 0, "s/big.py": 0,
		"s/mismatch.py": 2, "s/link.py": 0, "linked": 0, "bad-server": 0,
		"class": 0, "misplaced.py": 0,
	}
	for _, check := range []tools.Checker{nil, tools.PythonChecker("")} {
		if check != nil { // errors that only Python finds
			lines["s/expr.py"], lines["s/indent.py"] = 2, 2
		}
		listing := read(t, tools.OpenCatalogue(dir, tools.Options{Check: check}))
		for _, b := range listing.Broken {
			want, listed := lines[b.Path]
			if !listed || b.Message == "" || (b.Line != want && check == nil) || (want > 0 && b.Line == 0) {
				t.Errorf("broken: %s, want line %d", b, want)
			}
		}
		if len(listing.Broken) != len(lines) {
			t.Errorf("%d broken, want %d: %v", len(listing.Broken), len(lines), listing.Broken)
		}
		if _, err := listing.Lookup("s", "good"); err != nil {
			t.Errorf("Lookup of the valid tool s/good = %v, want nil", err)
		}
	}
}

// A new misplaced file is listed at once, even if no server changes.
func TestMisplacedFileIsListedAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "s/good.py", "def good(): pass\n")
	c := tools.OpenCatalogue(dir, tools.Options{})
	if listing := read(t, c); len(listing.Broken) != 0 {
		t.Fatalf("broken before the file was written = %v, want none", listing.Broken)
	}
	write(t, dir, "misplaced.py", "def misplaced(): pass\n")
	want := "a tool's file must be in a server's directory, for example servers/mine/misplaced.py"
	if listing := read(t, c); len(listing.Broken) != 1 || listing.Broken[0].Message != want {
		t.Errorf("broken = %v, want %q", listing.Broken, want)
	}
	if err := os.Remove(filepath.Join(dir, "misplaced.py")); err != nil {
		t.Fatal(err)
	}
	if listing := read(t, c); len(listing.Broken) != 0 {
		t.Errorf("broken after the file was removed = %v, want none", listing.Broken)
	}
}

// A file that crashes the parser is broken; the others are still checked.
func TestCheckerSurvivesHostileFiles(t *testing.T) {
	check := tools.PythonChecker(pythontest.Find(t))
	bad, err := check(t.Context(), map[string][]byte{
		"deep": []byte("x = " + strings.Repeat("(", 100000) + "1" + strings.Repeat(")", 100000)),
		"neg":  []byte("x = " + strings.Repeat("-", 200000) + "1"),
		"runs": []byte("import os\nos.abort()\n"), "good": []byte("x = 1\n"), "wrong": []byte("x = 1\ny = = 2\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, isBad := range map[string]bool{"deep": true, "neg": true, "runs": false, "good": false, "wrong": true} {
		if (bad[name].Message != "") != isBad {
			t.Errorf("%s: %v, want broken %t", name, bad[name], isBad)
		}
	}
	if bad, err := check(t.Context(), map[string][]byte{"mark": []byte("\ufeffx = 1\n")}); err != nil || len(bad) != 0 {
		t.Errorf("a file with a byte order mark: %v, %v, want it valid, as for Python's import", bad, err)
	}
	if bad["wrong"].Line != 2 {
		t.Errorf("wrong: line %d, want 2", bad["wrong"].Line)
	}
}

// A file that crashes the parser is broken even if it is the only one. An interpreter that fails makes no file broken.
func TestCheckOfOneFile(t *testing.T) {
	check := tools.PythonChecker(pythontest.Find(t))
	deep := map[string][]byte{"deep": []byte("x = " + strings.Repeat("-", 5_000_000) + "1")}
	if bad, err := check(t.Context(), deep); err != nil || bad["deep"].Message == "" {
		t.Errorf("check of one file that crashes the parser = %v, %v; want it broken", bad, err)
	}
	two := map[string][]byte{"a": nil, "b": nil}
	if bad, err := tools.PythonChecker("/bin/false")(t.Context(), two); err == nil {
		t.Errorf("check with an interpreter that fails = %v, want an error", bad)
	}
}

// TestReadAfterAnError checks that a change that a failed Read has seen is not lost.
func TestReadAfterAnError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "servers")
	var fails error
	c := tools.OpenCatalogue(dir, tools.Options{
		Check: func(context.Context, map[string][]byte) (map[string]tools.Broken, error) { return nil, fails },
	})
	if first := read(t, c); read(t, c) != first {
		t.Error("Read of a missing directory returned another listing, want the same")
	}
	write(t, dir, "mine/first.py", "def first(): pass\n")
	read(t, c)
	write(t, dir, "mine/second.py", "def second(): pass\n")
	fails = errors.New("the interpreter fails")
	if _, err := c.Read(t.Context()); !errors.Is(err, fails) {
		t.Errorf("Read = %v, want %v", err, fails)
	}
	fails = nil
	if got := ids(read(t, c)); !cmp.Equal(got, []string{"mine/first", "mine/second"}) {
		t.Errorf("tools after an error = %v, want both", got)
	}
	write(t, dir, tools.ApprovalsFile, "{")
	for range 2 {
		if got, err := c.Read(t.Context()); err == nil {
			t.Errorf("Read with broken approvals = %v, want an error", ids(got))
		}
	}
}

func TestConcurrentReads(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "s/a.py", "def a(): pass\n")
	c := tools.OpenCatalogue(dir, tools.Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				if i == 0 {
					at := filepath.Join(dir, "s", fmt.Sprintf("f%d.py", j))
					if err := tools.WriteFile(at, []byte("def f(): pass\n")); err != nil {
						t.Error(err)
					}
				}
				if s, err := c.Read(t.Context()); err != nil || len(s.Tools) == 0 {
					t.Errorf("Read = %v, %v; want tools", s, err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(read(t, c).Tools); got != 21 {
		t.Errorf("%d tools, want 21", got)
	}
}

func definition(name string) tools.Definition {
	schema := json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}}}`)
	return tools.Definition{Name: name, Description: "Does " + name + ".", InputSchema: schema}
}

// generated writes the files of a generated server.
func generated(tb testing.TB, dir, server string, defs ...tools.Definition) {
	tb.Helper()
	file := tools.Definitions{Server: server, Generator: tools.Generator, Names: map[string]string{}, Tools: defs}
	pkg := strings.ReplaceAll(server, "-", "_")
	for _, d := range defs {
		function := strings.ReplaceAll(d.Name, "-", "_")
		file.Names[d.Name] = function
		h := tools.Header{
			Generator: tools.Generator, Server: server, Tool: d.Name, Function: function, Hash: d.Hash(),
			Signature: function + "()",
		}
		body := fmt.Sprintf("\"\"\"%s\"\"\"\n\ndef %s():\n    pass\n%s", d.Description, function,
			strings.Repeat("# as long as a real module\n", 60))
		write(tb, dir, pkg+"/"+function+".py", string(tools.Seal(h, []byte(body))))
	}
	data, err := json.Marshal(file)
	if err != nil {
		tb.Fatal(err)
	}
	write(tb, dir, pkg+"/"+tools.DefinitionsFile, string(data))
}

func TestApprovals(t *testing.T) {
	dir := t.TempDir()
	d := definition("get-it")
	generated(t, dir, "up-stream", d)
	c := tools.OpenCatalogue(dir, tools.Options{})
	tool, err := read(t, c).Lookup("up-stream", "get-it")
	if err != nil {
		t.Fatal(err)
	}
	if tool.State != tools.Pending || tool.Module != "servers.up_stream.get_it" || tool.Hash != d.Hash() {
		t.Errorf("tool before approval = %+v, want it pending", tool)
	}
	write(t, dir, tools.ApprovalsFile, "null")
	approvals, err := tools.LoadApprovals(dir)
	if err != nil {
		t.Fatal(err)
	}
	if tool.Definition().Hash() != tool.Hash {
		t.Error("the tool's hash differs, want that of its definition")
	}
	approvals.Approve("up-stream", tool.Definition(), "alice", time.Now())
	if err := approvals.Save(dir); err != nil {
		t.Fatal(err)
	}
	if tool, _ = read(t, c).Lookup("up-stream", "get-it"); tool.State != tools.Approved {
		t.Errorf("state after approval = %s, want %s", tool.State, tools.Approved)
	}
	yes := true
	next := d
	next.Description = "Does more.\u200b"
	next.InputSchema = json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"},"b":{},"x: 1\n+ y":{}}}`)
	next.Annotations.Destructive = &yes
	generated(t, dir, "up-stream", next)
	listing := read(t, c)
	if tool, _ = listing.Lookup("up-stream", "get-it"); tool.State != tools.Changed {
		t.Errorf("state after a change = %s, want %s", tool.State, tools.Changed)
	}
	approvals, err = tools.LoadApprovals(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`+ annotations: {"destructiveHint":true}`,
		`description: "Does get-it." → "Does more.<U+200B>"`,
		`inputSchema.properties.a.type: "integer" → "string"`,
		`+ inputSchema.properties.b: {}`,
		`+ inputSchema.properties."x: 1\n+ y": {}`,
	}
	if diff := cmp.Diff(want, approvals.Difference("up-stream", next)); diff != "" {
		t.Errorf("Difference (-want +got):\n%s", diff)
	}
	if len(listing.Warnings) != 1 || listing.Warnings[0].Message != "hidden character U+200B (×1)" {
		t.Errorf("warnings = %+v, want one about U+200B", listing.Warnings)
	}
	hidden, asText := tools.Approvals{}, next
	hidden.Approve("up-stream", next, "alice", time.Now())
	asText.Description = "Does more.<U+200B>"
	want = []string{`description: "Does more.\u200b" → "Does more.<U+200B>"`}
	if diff := cmp.Diff(want, hidden.Difference("up-stream", asText)); diff != "" {
		t.Errorf("Difference of a hidden character and its code point as text (-want +got):\n%s", diff)
	}
	if got := approvals.Difference("up-stream", d); got != nil {
		t.Errorf("Difference of equal definitions = %q, want nil", got)
	}
	write(t, dir, tools.ApprovalsFile, "{")
	if _, err := c.Read(t.Context()); err == nil {
		t.Error("Read of broken approvals = nil, want an error")
	}
}

func TestWarningsAreInOrder(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for i := range 20 {
		d := definition("get")
		d.Description = "Hidden\u200b."
		server := fmt.Sprintf("server%02d", i)
		generated(t, dir, server, d)
		want = append(want, server+"/get")
	}
	var got []string
	for _, f := range read(t, tools.OpenCatalogue(dir, tools.Options{})).Warnings {
		got = append(got, f.Tool)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tools with a warning (-want +got):\n%s", diff)
	}
}

func TestHash(t *testing.T) {
	d := tools.Definition{Name: "n", InputSchema: json.RawMessage(`{"a":1,"b":[12345678901234567890]}`)}
	same := d
	same.InputSchema = json.RawMessage(` {"b": [12345678901234567890], "a": 1} `)
	if d.Hash() != same.Hash() {
		t.Error("key order and white space change the hash, want the same")
	}
	no := false
	for name, change := range map[string]func(*tools.Definition){
		"name": func(d *tools.Definition) { d.Name = "m" }, "title": func(d *tools.Definition) { d.Title = "t" },
		"description": func(d *tools.Definition) { d.Description = "d" },
		"input": func(d *tools.Definition) {
			d.InputSchema = json.RawMessage(`{"a":1,"b":[12345678901234567891]}`)
		},
		"output":      func(d *tools.Definition) { d.OutputSchema = json.RawMessage(`{}`) },
		"annotations": func(d *tools.Definition) { d.Annotations.OpenWorld = &no },
		"read only":   func(d *tools.Definition) { d.Annotations.ReadOnly = true },
	} {
		other := d
		if change(&other); other.Hash() == d.Hash() {
			t.Errorf("a change of the %s keeps the hash, want another", name)
		}
	}
}

func TestFilter(t *testing.T) {
	all := tools.NewListing([]tools.Tool{{Server: "a", Name: "x"}, {Server: "a", Name: "y"}, {Server: "b", Name: "x"}},
		tools.Broken{Path: "a/z.py"}, tools.Broken{Path: "c/z.py"})
	all.Warnings = []tools.LintWarning{{Tool: "a/y"}, {Tool: "b/x"}}
	some := all.Filter(func(server, tool string) bool { return server == "a" && tool != "x" })
	if d := cmp.Diff([]string{"a"}, some.Servers()); d != "" || len(some.Tools) != 1 || some.Tools[0].ID() != "a/y" {
		t.Errorf("Filter keeps %v, want a/y", some.Tools)
	}
	if len(some.Broken) != 1 || some.Broken[0].Path != "a/z.py" ||
		len(some.Warnings) != 1 || some.Warnings[0].Tool != "a/y" {
		t.Errorf("Filter keeps %v and %v, want those of server a except a/x", some.Broken, some.Warnings)
	}
	if _, err := some.Lookup("b", "x"); err == nil {
		t.Error("Lookup of a tool that Filter removed = nil, want an error")
	}
	if len(all.Tools) != 3 || len(all.Broken) != 2 {
		t.Error("Filter changed its receiver, want it unchanged")
	}
}

func TestLookupSuggestsTheNearest(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"add", "multiply", "calculate"} {
		write(t, dir, "calculator/"+n+".py", "def "+n+"(): pass\n")
	}
	write(t, dir, "weather/get_weather.py", "def get_weather(): pass\n")
	s := read(t, tools.OpenCatalogue(dir, tools.Options{}))
	for in, want := range map[[2]string]string{
		{"calculator", "calc"}:   "calculator/calculate",
		{"calculatr", "add"}:     "calculator/add",
		{"wether", "get_wether"}: "weather/get_weather",
	} {
		_, err := s.Lookup(in[0], in[1])
		unknown, ok := errors.AsType[*tools.UnknownError](err)
		if !ok || unknown.Nearest[0] != want {
			t.Errorf("Lookup(%v) = %v, want %s as the first suggestion", in, err, want)
		}
	}
}

// thousandTools writes a catalogue of 1,000 tools and returns its directory.
func thousandTools(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	for s := range 20 {
		var defs []tools.Definition
		for i := range 45 {
			defs = append(defs, definition(fmt.Sprintf("tool_%d", i)))
		}
		generated(tb, dir, fmt.Sprintf("server%d", s), defs...)
		for i := range 5 {
			name := fmt.Sprintf("own_%d", i)
			module := "import os\n\n\ndef " + name + "(a: int, b: str = 'x') -> dict:\n" +
				"    \"\"\"Does it.\"\"\"\n    return {'a': [a, b]}\n" + strings.Repeat("# more\n", 100)
			write(tb, dir, fmt.Sprintf("server%d/%s.py", s, name), module)
		}
	}
	return dir
}

func BenchmarkCold(b *testing.B) {
	for name, check := range map[string]tools.Checker{"scanner": nil, "python": tools.PythonChecker("")} {
		b.Run(name, func(b *testing.B) {
			dir := thousandTools(b)
			for b.Loop() {
				s, err := tools.OpenCatalogue(dir, tools.Options{Check: check}).Read(b.Context())
				if err != nil || len(s.Tools) != 1000 || len(s.Broken) != 0 {
					b.Fatal(err, len(s.Tools), s.Broken)
				}
			}
		})
	}
}

func BenchmarkWarm(b *testing.B) {
	c := tools.OpenCatalogue(thousandTools(b), tools.Options{})
	read(b, c)
	for b.Loop() {
		if s, err := c.Read(b.Context()); err != nil || len(s.Tools) != 1000 {
			b.Fatal(err)
		}
	}
}

func BenchmarkOneNewFile(b *testing.B) {
	dir := thousandTools(b)
	c := tools.OpenCatalogue(dir, tools.Options{})
	read(b, c)
	for i := 0; b.Loop(); i++ {
		write(b, dir, "server1/new.py", fmt.Sprintf("def new(): '%d'\n", i))
		read(b, c)
	}
}
