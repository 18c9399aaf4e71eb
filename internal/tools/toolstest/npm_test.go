package toolstest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/pythontest"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/tools/mcp"
	"github.com/codefleet/codefleet/internal/tools/pygen"
)

// npm installs the real servers in the directory CODEFLEET_TEST_NPM, and returns the directory. If that is
// impossible, npm skips the test, or fails it if CODEFLEET_TEST_NO_SKIP is set.
func npm(tb testing.TB) string {
	tb.Helper()
	dir, noSkip := os.Getenv("CODEFLEET_TEST_NPM"), os.Getenv("CODEFLEET_TEST_NO_SKIP") != ""
	if dir == "" {
		if noSkip {
			tb.Fatal("CODEFLEET_TEST_NPM does not name a directory for the npm servers")
		}
		tb.Skip("CODEFLEET_TEST_NPM is not set")
	}
	if out, err := exec.Command("npm/install.sh", dir).CombinedOutput(); err != nil {
		if noSkip {
			tb.Fatalf("install the npm servers = %v, want nil\n%s", err, out)
		}
		tb.Skipf("install the npm servers: %v", err)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return abs
}

// realServers returns the six servers, which work in the directory work.
func realServers(tb testing.TB, dir, work string) []mcp.Server {
	tb.Helper()
	node := filepath.Join(dir, "node_modules/.bin/node")
	module := func(name string) string { return filepath.Join(dir, "node_modules", name) }
	git := filepath.Join(work, "repo")
	for _, args := range [][]string{
		{"init", "-q", git},
		{"-C", git, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "first"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			tb.Fatalf("git = %v, want nil\n%s", err, out)
		}
	}
	official := "@modelcontextprotocol/server-"
	list := []mcp.Server{
		{Name: "everything", Args: []string{module(official + "everything/dist/index.js"), "stdio"}},
		{Name: "filesystem", Args: []string{module(official + "filesystem/dist/index.js"), work}},
		{
			Name: "memory", Args: []string{module(official + "memory/dist/index.js")},
			Env: map[string]string{"MEMORY_FILE_PATH": filepath.Join(work, "memory.jsonl")},
		},
		{Name: "sequential-thinking", Args: []string{module(official + "sequential-thinking/dist/index.js")}},
		{
			Name: "git", Args: []string{module("@cyanheads/git-mcp-server/dist/index.js")},
			Env: map[string]string{"MCP_TRANSPORT_TYPE": "stdio", "MCP_LOG_LEVEL": "error", "GIT_BASE_DIR": work},
		},
		{Name: "sqlite", Args: []string{module("mcp-server-sqlite-npx/dist/index.js"), filepath.Join(work, "data.db")}},
	}
	for i := range list {
		list[i].Command, list[i].Dir, list[i].Limits.ConnectTimeout = node, work, time.Minute
	}
	return list
}

// toolCounts holds the number of tools of each server at its installed version. (The server everything has
// one more for clients that declare roots.)
var toolCounts = map[string]int{
	"everything": 13, "filesystem": 14, "memory": 9, "sequential-thinking": 1, "git": 28, "sqlite": 5,
}

// generate writes and approves the modules of all servers, and returns the listing.
func generate(tb testing.TB, m *mcp.Manager, dir string) *tools.Listing {
	tb.Helper()
	approvals := tools.Approvals{}
	for _, server := range m.Servers() {
		defs, about, err := m.Definitions(tb.Context(), server, "", "")
		if err != nil {
			tb.Fatalf("Definitions of %s = %v, want nil", server, err)
		}
		p, err := pygen.Generate(pygen.Source{Server: server, About: about, Tools: defs})
		if err != nil || len(p.Rejected) > 0 {
			tb.Fatalf("Generate of %s = %v, rejected %v; want none", server, err, p.Rejected)
		}
		if want, known := toolCounts[server]; known && len(defs) != want {
			tb.Errorf("%s has %d tools, want %d", server, len(defs), want)
		}
		if _, err := pygen.Write(dir, p); err != nil {
			tb.Fatal(err)
		}
		for _, d := range defs {
			approvals.Approve(server, d, "test", time.Now())
		}
	}
	if err := approvals.Save(dir); err != nil {
		tb.Fatal(err)
	}
	listing, err := tools.OpenCatalogue(dir, tools.Options{Check: tools.PythonChecker("")}).Read(tb.Context())
	if err != nil || len(listing.Broken) > 0 {
		tb.Fatalf("Read = %v, broken %v; want none", err, listing.Broken)
	}
	return listing
}

// noRecords is a journal and an audit that store nothing.
type noRecords struct{}

func (noRecords) Begin(context.Context, broker.AuditRecord) error { return nil }

func (noRecords) Decided(context.Context, broker.AuditRecord) error { return nil }

func (noRecords) End(context.Context, broker.AuditRecord) error { return nil }

func (noRecords) Lookup(context.Context, string, string) ([]broker.JournalEntry, error) {
	return nil, nil
}
func (noRecords) Intent(context.Context, broker.JournalEntry) (uint64, error) { return 0, nil }
func (noRecords) Record(context.Context, broker.JournalEntry) error           { return nil }

func execution(tb testing.TB, m *mcp.Manager, listing *tools.Listing, files *sync.Map) *broker.Execution {
	tb.Helper()
	e, err := broker.New(tb.Context(), broker.Config{
		Task: broker.Task{ID: "t", Tenant: "a", Run: 1, Allow: []string{"*"}}, Catalogue: listing, Upstream: m.Call,
		Journal: noRecords{}, Audit: noRecords{},
		Policy: broker.Policy{Destructive: broker.Allow},
		Hooks: broker.Hooks{Spill: func(_ context.Context, name, _ string, data []byte) (string, error) {
			files.Store(name, data)
			return name, nil
		}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// A Python program calls the generated modules of all six servers, through the broker.
func TestRealServers(t *testing.T) {
	dir, work := npm(t), t.TempDir()
	m, out := manager(t, realServers(t, dir, work)...)
	servers := filepath.Join(t.TempDir(), "servers")
	listing := generate(t, m, servers)
	if len(listing.Tools) != 70 {
		t.Errorf("%d tools, want 70", len(listing.Tools))
	}
	var files sync.Map
	got := program(t, filepath.Dir(servers), execution(t, m, listing, &files), strings.ReplaceAll(`
from client.mcp_client import ToolError
from servers.everything import echo, get_sum, get_tiny_image, get_structured_content
print(echo("hi"), "|", get_sum(2, 3))
image = [b for b in get_tiny_image() if isinstance(b, dict) and "path" in b][0]
print(image["media_type"], image["bytes"] > 0)
print(sorted(get_structured_content("New York")))
from servers.filesystem import write_file, read_text_file, list_directory
write_file("WORK/a.txt", "Hello World")
with open("WORK/a.png", "wb") as f: f.write(b"png")
from client.mcp_client import with_content
from servers.filesystem import read_media_file
structure, beside = with_content(read_media_file, "WORK/a.png")
print(sorted(structure), [(b["media_type"], b["bytes"]) for b in beside])
try: read_text_file("WORK/none.txt")
except ToolError as e: print(e.code, len(e.content), "no such file" in e.content[0])
print(read_text_file("WORK/a.txt"))
try: read_text_file("/etc/passwd")
except ToolError as e: print("refused:", "Access denied" in str(e))
from servers.memory import create_entities, read_graph
create_entities([{"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}])
print([e["name"] for e in read_graph()["entities"]])
from servers.sequential_thinking import sequentialthinking
print(sequentialthinking("first", False, 1, 1)["thoughtNumber"])
from servers.sqlite import write_query, create_table, read_query
create_table("CREATE TABLE t (n INTEGER)")
write_query("INSERT INTO t VALUES (42)")
print(read_query("SELECT n FROM t"))
from servers.git import git_log
print("first" in str(git_log(path="WORK/repo")))
`, "WORK", work))
	want := `Echo: hi | The sum of 2 and 3 is 5.
image/png True
['conditions', 'humidity', 'temperature']
['content'] [('image/png', 3)]
tool_failed 1 True
{'content': 'Hello World'}
refused: True
['Ada']
1
[{'n': 42}]
True
`
	if got != want {
		t.Errorf("the program printed\n%s\nwant\n%s\n%s", got, want, out)
	}
	n := 0
	files.Range(func(any, any) bool { n++; return true })
	if n != 2 {
		t.Errorf("%d files were stored, want only the two images", n)
	}
}

// program runs a Python program with the modules in dir and returns its output. Its calls go to e.
func program(tb testing.TB, dir string, e *broker.Execution, code string) string {
	tb.Helper()
	client, err := filepath.Abs("testdata")
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), pythontest.Find(tb), "-S", "-B", "-c", code)
	cmd.Env = []string{"PYTHONPATH=" + dir + ":" + client, "LANG=C.UTF-8", "CALLS=3", "RESPONSES=4"}
	callsRead, callsWrite, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	responsesRead, responsesWrite, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	defer callsRead.Close()
	defer responsesWrite.Close()
	cmd.ExtraFiles = []*os.File{callsWrite, responsesRead}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	_ = callsWrite.Close()
	_ = responsesRead.Close()
	in := bufio.NewScanner(callsRead)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var c struct {
			Server, Tool, Hash string
			Arguments          json.RawMessage
		}
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			tb.Fatal(err)
		}
		r, err := e.Call(tb.Context(), broker.Call{Server: c.Server, Tool: c.Tool, Hash: c.Hash, Args: c.Arguments})
		response := map[string]any{"value": r.Value, "content": r.Content}
		if err != nil {
			failure, ok := errors.AsType[*broker.Error](err)
			if !ok {
				tb.Fatal(err)
			}
			response = map[string]any{"error": failure}
		}
		if err := json.NewEncoder(responsesWrite).Encode(response); err != nil {
			tb.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		tb.Errorf("run Python = %v, want nil", err)
	}
	return out.String()
}

// The server "everything" over streamable HTTP.
func TestRealServerOverHTTP(t *testing.T) {
	dir := npm(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	cmd := exec.Command(filepath.Join(dir, "node_modules/.bin/node"),
		filepath.Join(dir, "node_modules/@modelcontextprotocol/server-everything/dist/index.js"), "streamableHttp")
	cmd.Env = []string{"PORT=" + strconv.Itoa(port), "PATH=/usr/bin:/bin"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	m, _ := manager(t, mcp.Server{Name: "everything", URL: "http://127.0.0.1:" + strconv.Itoa(port) + "/mcp"})
	waitUntil(t, "the server listens", func() bool {
		_, _, err := m.Definitions(t.Context(), "everything", "", "")
		return err == nil
	})
	var steps int
	r, err := m.Call(t.Context(),
		tools.Request{Server: "everything", Tool: "echo", Args: json.RawMessage(`{"message":"hi"}`)})
	if err != nil || r.Content[0].Text != "Echo: hi" {
		t.Errorf("echo = %+v, %v; want Echo: hi", r, err)
	}
	r, err = m.Call(t.Context(), tools.Request{
		Server: "everything", Tool: "trigger-long-running-operation", Args: json.RawMessage(`{"duration":1,"steps":4}`),
		Progress: func(string, float64, float64) { steps++ },
	})
	if err != nil || steps < 3 {
		t.Errorf("long-running operation = %+v, %v, %d steps, want at least 3", r, err, steps)
	}
}

// A real server is killed during a call. The next call starts it again.
func TestRealServerKilled(t *testing.T) {
	dir, work := npm(t), t.TempDir()
	m, _ := manager(t, realServers(t, dir, work)[0])
	call := func(tool, args string) error {
		_, err := m.Call(t.Context(), tools.Request{Server: "everything", Tool: tool, Args: json.RawMessage(args)})
		return err
	}
	if err := call("echo", `{"message":"hi"}`); err != nil {
		t.Fatal(err)
	}
	inFlight := make(chan struct{})
	var once sync.Once
	done := make(chan error, 1)
	go func() {
		_, err := m.Call(t.Context(), tools.Request{
			Server: "everything", Tool: "trigger-long-running-operation",
			Args:     json.RawMessage(`{"duration":60,"steps":600}`),
			Progress: func(string, float64, float64) { once.Do(func() { close(inFlight) }) },
		})
		done <- err
	}()
	<-inFlight
	killChildren(t, syscall.SIGKILL)
	if err := <-done; reason(t, err) != tools.Lost {
		t.Errorf("the interrupted call = %v, want lost", err)
	}
	if err := call("echo", `{"message":"again"}`); err != nil {
		t.Errorf("the next call = %v, want nil", err)
	}
}

// killChildren signals the node processes that this process started.
func killChildren(t *testing.T, s syscall.Signal) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) && strings.Contains(string(data), "(node)") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err == nil && syscall.Kill(pid, s) == nil {
				n++
			}
		}
	}
	if n == 0 {
		t.Fatal("no process to kill, want one")
	}
}

// Pyright checks all generated modules, including those of hostile definitions, and programs that use them.
func TestPyright(t *testing.T) {
	dir, work := npm(t), t.TempDir()
	m, _ := manager(t, realServers(t, dir, work)...)
	root := t.TempDir()
	generate(t, m, filepath.Join(root, "servers"))
	odd := []tools.Definition{
		{Name: "__init__"},
		{Name: "../x"},
		{Name: "💥"},
		{Name: "any", InputSchema: json.RawMessage(`true`), OutputSchema: json.RawMessage(`false`)},
		{
			Name: "class",
			InputSchema: json.RawMessage(`{"properties":{"def":{"type":"string"},"list":{"type":"array",` +
				`"items":{"type":"integer"}}},"required":["def"]}`),
		},
		{
			Name: "types", InputSchema: json.RawMessage(`{"properties":{"node":{"$ref":"#/$defs/N"},` +
				`"pair":{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}]}},"required":["node"],` +
				`"additionalProperties":{"type":"string"},"$defs":{"N":{"type":"object",` +
				`"properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/N"},{"type":"null"}]}},` +
				`"required":["v"]}}}`),
			OutputSchema: json.RawMessage(`{"type":"object","properties":{"str":{"type":"string"},` +
				`"int":{"type":"integer"},"Any":{},"a-b":{"enum":["x",1,null,1.5]},"__x":{"type":"null"}},` +
				`"required":["str","a-b"]}`),
		},
	}
	p, err := pygen.Generate(pygen.Source{Server: "odd", Tools: odd})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pygen.Write(filepath.Join(root, "servers"), p); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(root, "client"), os.DirFS("../pygen/testdata/client")); err != nil {
		t.Fatal(err)
	}
	good := `from servers.filesystem import read_text_file, write_file
from servers.odd import class_, types
text: str = read_text_file("a.txt", head=3)["content"]
write_file("b.txt", text)
class_("x", list=[1, 2])
r = types({"v": 1, "next": {"v": 2}}, more="x")
print(r["str"].upper())
`
	if errs := pyright(t, dir, root, good); len(errs) > 0 {
		t.Errorf("pyright finds %d errors, want none:\n%s", len(errs), strings.Join(errs, "\n"))
	}
	bad := `from servers.filesystem import read_text_file, write_file
write_file("b.txt")
read_text_file("a", haed=3)
read_text_file(1)
read_text_file("a")["contents"]
from servers.filesystem import read_txt_file
`
	if errs := pyright(t, dir, root, bad); len(errs) != 5 {
		t.Errorf("pyright finds %d of 5 planted mistakes, want all:\n%s", len(errs), strings.Join(errs, "\n"))
	}
}

func pyright(t *testing.T, npm, root, program string) []string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, "program.py"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	config := `{"pythonVersion":"3.9","typeCheckingMode":"standard","include":["servers","program.py"]}`
	if err := os.WriteFile(filepath.Join(root, "pyrightconfig.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(npm, "node_modules/.bin/node"),
		filepath.Join(npm, "node_modules/pyright/index.js"), "--outputjson", "-p", root)
	out, err := cmd.Output()
	var report struct {
		GeneralDiagnostics []struct {
			File, Message, Severity string
			Range                   struct{ Start struct{ Line int } }
		}
		Summary struct{ FilesAnalyzed int }
	}
	if jsonErr := json.Unmarshal(out, &report); jsonErr != nil || report.Summary.FilesAnalyzed < 80 {
		t.Fatalf("pyright = %v, %v, %d files; want at least 80\n%s", err, jsonErr, report.Summary.FilesAnalyzed, out)
	}
	var errs []string
	for _, d := range report.GeneralDiagnostics {
		if d.Severity == "error" {
			errs = append(errs, filepath.Base(d.File)+":"+strconv.Itoa(d.Range.Start.Line+1)+": "+d.Message)
		}
	}
	return errs
}
