package main

import (
	"go/ast"
	gotoken "go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/sourcetest"
)

// notCommands are words that follow "codefleet" in strings that are not command lines, such as connection names and key
// labels.
var notCommands = []string{"does", "heads", "packages", "probe", "wants", "workspaces"}

// TestCommandsInDocuments checks that every `codefleet …` in the documents is a valid command line.
func TestCommandsInDocuments(t *testing.T) {
	root := sourcetest.Root(t)
	checked := 0
	for _, file := range documents(t, root) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, command := range commandsInMarkdown(line) {
				checked++
				if problem := checkCommand(command, true); problem != "" {
					t.Errorf("%s:%d: codefleet %s: %s, want a valid command line", file, i+1, command, problem)
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("found %d command lines, want at least 50", checked)
	}
}

// TestCommandsInMessages checks the command and flags of every `codefleet …` in errors, hints and help. It does not
// check arguments, because prose may follow a command that is not in backquotes.
func TestCommandsInMessages(t *testing.T) {
	checked := 0
	for _, f := range sourcetest.GoFiles(t) {
		if f.Test {
			continue
		}
		set, tree := sourcetest.Parse(t, f, 0)
		for n := range ast.Preorder(tree) {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != gotoken.STRING {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range inMessage.FindAllStringSubmatch(text, -1) {
				checked++
				if first, _, _ := strings.Cut(m[1], " "); slices.Contains(notCommands, first) ||
					strings.Contains(first, "%") {
					continue
				}
				if problem := checkCommand(m[1], false); problem != "" {
					t.Errorf("%s: codefleet %s: %s, want a valid command line",
						set.Position(literal.Pos()), m[1], problem)
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("found %d command lines, want at least 50", checked)
	}
}

// TestCheckCommand checks that checkCommand finds errors.
func TestCheckCommand(t *testing.T) {
	for command, want := range map[string]string{
		"run --code 'print(1)' -o json": "",
		"workspace pin NAME 12":         "",
		"up --http ADDR | tee log":      "",
		"undo":                          "no command undo",
		"run --codes x":                 "unknown flag: --codes",
		"dead revive ID":                `unknown command "revive"`,
		"version x":                     `unexpected argument "x"`,
	} {
		if got := checkCommand(command, true); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("checkCommand(%s) = %q, want %q", command, got, want)
		}
	}
	line := "run `codefleet up`, or `bin/codefleet status ID`; see `codefleet`"
	if got := commandsInMarkdown(line); len(got) != 2 || got[0] != "up" || got[1] != "status ID" {
		t.Errorf("commandsInMarkdown(%s) = %q, want up and status ID", line, got)
	}
}

// word matches a word of a command line in a message.
const word = `(?:-{0,2}[a-z%][\w%=./*-]*|[A-Z/]+|'[^']*')`

var (
	inBackquotes = regexp.MustCompile("`(?:[\\w./]*/)?codefleet ([^`]+)`")
	inCodeBlock  = regexp.MustCompile(`^(?: {4}|\t|[$] )(?:\S+=\S+ |sudo )*(?:\S*/)?codefleet (\S.*)$`)
	// inMessage matches the words of a command line in a message, up to punctuation that command lines do not have.
	inMessage = regexp.MustCompile("(?:^|[\\s`(])codefleet (" + word + "(?: " + word + ")*)")
)

func commandsInMarkdown(line string) (found []string) {
	if m := inCodeBlock.FindStringSubmatch(line); m != nil {
		return []string{m[1]}
	}
	for _, m := range inBackquotes.FindAllStringSubmatch(line, -1) {
		found = append(found, m[1])
	}
	return found
}

// checkCommand describes the error in a command line, which is given without its first word, codefleet. If exact is
// false, prose may follow the command.
func checkCommand(line string, exact bool) (problem string) {
	words := split(strings.NewReplacer("[", "", "]", "").Replace(line)) // options are in brackets
	if len(words) == 0 {
		return ""
	}
	root := (&app{}).root()
	root.InitDefaultHelpFlag()
	c, rest, _ := root.Find(words) // the remaining words are checked below
	if c == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return "no command " + rest[0]
	}
	c.InitDefaultHelpFlag()
	if !exact {
		return checkFlags(c, rest)
	}
	if err := c.ParseFlags(rest); err != nil {
		if strings.Contains(err.Error(), "argument") { // a placeholder, or a missing argument
			return checkFlags(c, rest)
		}
		return err.Error()
	}
	args := c.Flags().Args()
	if err := c.ValidateArgs(args); err != nil && len(args) > 0 && !isPlaceholder(args[0]) {
		return err.Error()
	}
	return ""
}

func isPlaceholder(word string) bool { return strings.ToUpper(word) == word }

// checkFlags describes the first unknown flag among words.
func checkFlags(c *cobra.Command, words []string) string {
	for _, w := range words {
		name, _, _ := strings.Cut(w, "=")
		long, isLong := strings.CutPrefix(name, "--")
		short, isShort := strings.CutPrefix(name, "-")
		if isLong && long != "" && c.Flag(long) == nil || !isLong && isShort && len(short) == 1 &&
			c.Flags().ShorthandLookup(short) == nil &&
			c.InheritedFlags().ShorthandLookup(short) == nil {
			return "unknown flag: " + name
		}
	}
	return ""
}

// split returns the words of a command line before a comment, a pipe or a redirection.
func split(line string) (words []string) {
	for _, m := range regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		if strings.HasPrefix(m[3], "#") || strings.ContainsAny(m[3], "|<>;&…") {
			break
		}
		words = append(words, m[1]+m[2]+m[3])
	}
	return words
}

// documents returns the paths of the project's Markdown files.
func documents(t *testing.T, root string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata") &&
			path != root {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d documents, %v, want at least 10, nil", len(files), err)
	}
	return files
}
