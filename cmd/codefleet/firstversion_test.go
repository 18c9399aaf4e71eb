package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// The directory testdata/firstversion has the documents of the first version, and a list that says of each code block
// how it is checked. A line of the list is
//
//	DOCUMENT:LINE VERB ARGUMENT
//
// with the line on which the block begins, and one of these verbs:
//
//	none REASON       the block does not call the system
//	same DOC:LINE     the block has the text of another one
//	row TEXT          docs/first-version.md or docs/configuration.md says TEXT; rows.txt has the test of the row
//	script NAME       the script NAME runs what the block runs
//	health            the fleet responds at /health
//	env, config       the block is accepted as .env or as config.yaml
//	shell, python     the block runs successfully, in an empty directory
//
// Lines that begin with a tab belong to the block above:
//
//	after DOC:LINE    another block runs first
//	before CODE       this code runs first
//	replace OLD => NEW
//	append CODE       this code runs last
//	want TEXT         the output contains TEXT
type block struct {
	doc     string
	line    int
	verb    string
	arg     string
	text    string
	after   []string
	before  string
	replace [][2]string
	add     string
	want    []string
}

func (b *block) name() string { return fmt.Sprintf("%s:%d", b.doc, b.line) }

const firstVersion = "testdata/firstversion"

// codeBlocks returns the code blocks of a document, by DOCUMENT:LINE, and their names in order.
func codeBlocks(doc, text string) (blocks map[string]string, order []string) {
	blocks = map[string]string{}
	var name, indent string
	var body []string
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case !strings.HasPrefix(trimmed, "```"):
			if name != "" {
				body = append(body, strings.TrimPrefix(line, indent))
			}
		case name == "":
			name, indent, body = fmt.Sprintf("%s:%d", doc, i+1), line[:len(line)-len(trimmed)], nil
		default:
			blocks[name] = strings.Join(body, "\n") + "\n"
			order, name = append(order, name), ""
		}
	}
	return blocks, order
}

// readBlocks returns the list of blocks with their texts. It returns an error unless the list has each block once.
func readBlocks(dir string) ([]*block, error) {
	texts, left := map[string]string{}, map[string]bool{}
	docs, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			return nil, err
		}
		found, order := codeBlocks(strings.TrimSuffix(filepath.Base(doc), ".md"), string(text))
		for _, name := range order {
			texts[name], left[name] = found[name], true
		}
	}
	list, err := os.ReadFile(filepath.Join(dir, "blocks.txt"))
	if err != nil {
		return nil, err
	}
	var blocks []*block
	for line := range strings.Lines(string(list)) {
		line = strings.TrimRight(line, "\n")
		key, rest, _ := strings.Cut(strings.TrimPrefix(line, "\t"), " ")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '\t' && len(blocks) > 0:
			if err := blocks[len(blocks)-1].set(key, strings.ReplaceAll(rest, `\n`, "\n")); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", blocks[len(blocks)-1].name(), err))
			}
		default:
			b := &block{text: texts[key]}
			b.doc, b.line = key[:1], lineOf(key)
			b.verb, b.arg, _ = strings.Cut(rest, " ")
			if !left[key] {
				problems = append(problems, fmt.Errorf("%s: no such block, or listed twice", key))
			}
			delete(left, key)
			blocks = append(blocks, b)
		}
	}
	for name := range left {
		problems = append(problems, fmt.Errorf("%s: not in the list: %.100q", name, texts[name]))
	}
	for _, b := range blocks {
		problems = append(problems, b.compose(texts))
	}
	return blocks, errors.Join(problems...)
}

func lineOf(name string) (line int) {
	_, _ = fmt.Sscanf(name[strings.Index(name, ":")+1:], "%d", &line)
	return line
}

func (b *block) set(key, value string) error {
	switch key {
	case "after":
		b.after = append(b.after, value)
	case "before":
		b.before += value + "\n"
	case "append":
		b.add += value + "\n"
	case "want":
		b.want = append(b.want, value)
	case "replace":
		from, to, ok := strings.Cut(value, " => ")
		if !ok {
			return fmt.Errorf("replace %q has no =>", value)
		}
		b.replace = append(b.replace, [2]string{from, to})
	default:
		return fmt.Errorf("unknown key %q", key)
	}
	return nil
}

// compose adds what runs before and after the block to its text.
func (b *block) compose(texts map[string]string) error {
	if b.verb == "same" {
		if texts[b.arg] != b.text {
			return fmt.Errorf("%s differs from %s", b.name(), b.arg)
		}
		return nil
	}
	var before strings.Builder
	for _, name := range b.after {
		if texts[name] == "" {
			return fmt.Errorf("%s: no block %s", b.name(), name)
		}
		before.WriteString(texts[name])
	}
	text := before.String() + b.text
	for _, r := range b.replace {
		if !strings.Contains(text, r[0]) {
			return fmt.Errorf("%s does not contain %q", b.name(), r[0])
		}
		text = strings.ReplaceAll(text, r[0], r[1])
	}
	b.text = b.before + text + b.add
	return nil
}

// runBlocks implements the script command
//
//	blocks    check all code blocks of the documents of the first version
func runBlocks(ts *testscript.TestScript, _ bool, _ []string) {
	repo := ts.Getenv("REPO")
	blocks, err := readBlocks(filepath.Join(repo, "cmd/codefleet", firstVersion))
	ts.Check(err)
	var docs strings.Builder
	for _, name := range []string{"docs/first-version.md", "docs/configuration.md"} {
		text, err := os.ReadFile(filepath.Join(repo, name))
		ts.Check(err)
		docs.Write(text)
	}
	var mu sync.Mutex
	var failed []string
	var running sync.WaitGroup
	slots := make(chan struct{}, 3)
	for _, b := range blocks {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := b.check(ts, repo, docs.String()); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Sprintf("%s %s: %v", b.name(), b.verb, err))
			}
		})
	}
	running.Wait()
	if len(failed) > 0 {
		ts.Fatalf("%d of %d blocks:\n%s", len(failed), len(blocks), strings.Join(failed, "\n"))
	}
	_, _ = fmt.Fprintf(ts.Stdout(), "%d blocks\n", len(blocks))
}

func (b *block) check(ts *testscript.TestScript, repo, docs string) error {
	switch b.verb {
	case "none":
		return requireText(b.arg, "a reason")
	case "same":
		return nil
	case "row":
		if !strings.Contains(docs, b.arg) || b.arg == "" {
			return fmt.Errorf("the table has no %q", b.arg)
		}
		return nil
	case "script":
		_, err := os.Stat(filepath.Join(repo, "cmd/codefleet/testdata/script", b.arg+".txtar"))
		return err
	case "health":
		return getOK(ts, "/health")
	case "env":
		return b.run(ts, repo, ".env", "codefleet", "config", "check")
	case "config":
		return b.run(ts, repo, "config.yaml", "codefleet", "config", "check")
	case "shell":
		return b.run(ts, repo, "block.sh", "sh", "-e", "block.sh")
	case "python":
		return b.run(ts, repo, "block.py", "python3", "-B", "block.py")
	}
	return errors.New("unknown verb")
}

func requireText(text, what string) error {
	if text == "" {
		return fmt.Errorf("want %s", what)
	}
	return nil
}

// run writes the block into a file of an empty directory, and runs a command there.
func (b *block) run(ts *testscript.TestScript, repo, file, command string, args ...string) error {
	dir := ts.MkAbs(fmt.Sprintf("b%s-%d", b.doc, b.line))
	err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, file), []byte(b.text), 0o600),
		os.Symlink(filepath.Join(repo, "examples"), filepath.Join(dir, "examples")),
		os.Symlink(filepath.Join(repo, "clients"), filepath.Join(dir, "clients")))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	path, err := lookPath(ts.Getenv("PATH"), command)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	for _, name := range []string{
		"HOME", "TMPDIR", "XDG_DATA_HOME", "CODEFLEET_EXECUTION_RUNSC", "CODEFLEET_OPTIMIZATIONS_SANDBOX_POOL_SIZE",
		"GORACE",
	} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Env = append(cmd.Env, "PATH="+ts.MkAbs("bin")+":"+ts.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1",
		"PYTHONPATH="+strings.Join([]string{repo + "/clients/python", repo + "/examples", ts.MkAbs("lib")}, ":"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for _, want := range b.want {
		if !strings.Contains(string(out), want) {
			err = errors.Join(err, fmt.Errorf("output %q, want one with %q", out, want))
		}
	}
	return err
}

// lookPath finds a program in a list of directories.
func lookPath(path, name string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode()&0o111 != 0 {
			return filepath.Join(dir, name), nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

func getOK(ts *testscript.TestScript, path string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+ts.Getenv("HTTP")+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = cmp.Or(err, fmt.Errorf("%s: %s", resp.Status, body))
	}
	return err
}

// TestFirstVersionList checks that the list of code blocks is complete. The script firstversion checks the blocks.
func TestFirstVersionList(t *testing.T) {
	blocks, err := readBlocks(firstVersion)
	if err != nil {
		t.Error(err)
	}
	for _, b := range blocks {
		if b.verb == "none" && b.arg == "" {
			t.Errorf("%s has no reason", b.name())
		}
	}
}

// TestFirstVersionRows checks that rows.txt names a test or a file that proves each row of docs/first-version.md.
func TestFirstVersionRows(t *testing.T) {
	const repo = "../.."
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(repo, path))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	var rows []string
	for line := range strings.Lines(read("docs/first-version.md")) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| **") && !strings.HasPrefix(line, "| name") {
			rows = append(rows, strings.Split(strings.ReplaceAll(line, `\|`, "/"), "|")[1])
		}
	}
	proven := map[string]bool{}
	for line := range strings.Lines(read("cmd/codefleet/" + firstVersion + "/rows.txt")) {
		row, evidence, ok := strings.Cut(strings.TrimSpace(line), " => ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		file, text, _ := strings.Cut(evidence, ": ")
		if text == "" || !strings.Contains(read(file), text) {
			t.Errorf("%s: %s does not contain %q", row, file, text)
		}
		matched := slices.DeleteFunc(slices.Clone(rows), func(r string) bool { return !strings.Contains(r, row) })
		if len(matched) == 0 {
			t.Errorf("%s: the table has no such row", row)
		}
		for _, r := range matched {
			proven[r] = true
		}
	}
	for _, r := range rows {
		if !proven[r] {
			t.Errorf("row%s: rows.txt does not say what proves it", r)
		}
	}
}
