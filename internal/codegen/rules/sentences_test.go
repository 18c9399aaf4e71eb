package rules

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/codegen"
)

// Each sentence runs in an empty workspace.
func TestSentences(t *testing.T) {
	for task, want := range map[string]string{
		"What is the difference between 10 and 3?":                `7`,
		"What is the difference between 3 and 10":                 `7`,
		"Calculate the difference between -5 and 5":               `10`,
		"the absolute difference between 1,500 and 250":           `1250`,
		"Calculate the difference between 10 and 3 and double it": `{"calculation":7,"calculation 2":14}`,

		"decrease 10 by 3":          `7`,
		"Decrement 5 by 1":          `4`,
		"reduce 10 by 15":           `-5`,
		"Increase 1,500 by 1,000":   `2500`,
		"Increase -10 by 10%":       `-11`,
		"Decrease 80 by 25 percent": `60`,
		"Calculate 4 * 5, increase it by 1 and decrease it by " +
			"2": `{"calculation":20,"calculation 2":21,"calculation 3":19}`,

		"Save 5 as count in state. Decrement the count in the state by 2. What is the count in the " +
			"state?": `{"count":3,"state":{"count":3}}`,
		"Save 5 as count in state. Decrease count by 2 in the state. What is the count in the " +
			"state?": `{"count":3,"state":{"count":3}}`,
		"Save 5 as count in state. Decrement the count in the state. What is the count in the " +
			"state?": `{"count":4,"state":{"count":4}}`,
		"Create data.json with {\"a\": 1}. Increase a in data.json by 4. Reduce a by 2 in data.json. What is a " +
			"in data.json?": `{"a":3,"state":{"a":3}}`,

		"Calculate 8 * 2 and halve it, then double " +
			"it": `{"calculation":16,"calculation 2":8,"calculation 3":16}`,
		"square of 5":                           `25`,
		"What is the square of -5?":             `25`,
		"cube of 3":                             `27`,
		"cube -3":                               `-27`,
		"half of 10":                            `5`,
		"What is half of 1,001?":                `500.5`,
		"a quarter of 10":                       `2.5`,
		"double of 4":                           `8`,
		"10 percent of 250":                     `25`,
		"7% of 100":                             `7`,
		"Calculate the square of 2 and cube it": `{"calculation":4,"calculation 2":64}`,
		"square root of 144":                    `12`,
		"What is the square root of 2?":         `1.4142135623730951`,
		"the square root of 10000000000000000":  `100000000`,

		"What is -5% of 200":                        `-10`,
		"divide 10 by (2 + 3)":                      `2`,
		"double (8 + 1)":                            `18`,
		"Calculate 2 + 3, divide 100 by the result": `{"calculation":5,"calculation 2":20}`,
	} {
		got, output, err := newHarness(t, "18").try(task)
		text, _ := json.Marshal(got)
		if err != nil || string(text) != want {
			t.Errorf("%q = %s, %v, want %s\n%s", task, text, err, want, output)
		}
	}
}

// Programs read the content of files, or fail with a sentence that says why they cannot.
func TestFilesOfTheWorkspace(t *testing.T) {
	for _, c := range []struct{ file, content, task, want string }{
		{"a.csv", "name,price\na,1.5\nb,2.5\n", "What is the average price in a.csv?", "2"},
		{"a.csv", "\ufeffprice,x\n1,2\n", "What is the average price in a.csv?", "1"},
		{"a.csv", "price,\n1,\n2,,\n", "What is the average price in a.csv?", "1.5"},
		{"a.csv", "price\nnan\n", "What is the average price in a.csv?", `a value of price is "nan", not a number`},
		{"a.csv", "price\n1e999\n", "What is the average price in a.csv?", `a value of price is "1e999", not a number`},
		{"a.csv", "price\n1e-999\n", "What is the average price in a.csv?", `a value of price is "1e-999", not a number`},
		{"a.csv", "price\n0.1" + strings.Repeat("1", 5000), "How many rows are in a.csv?", "1"},
		{"a.csv", "price\n0.10\n-.3\n1.\n+2e0\n", "What is the total price in a.csv?", "2.8"},
		{"a.csv", "price\n007\n1.000\n", "What is the total price in a.csv?", "8"},
		{"a.csv", "price\n1_0\n", "What is the average price in a.csv?", `a value of price is "1_0", not a number`},
		{"a.csv", "name,price\na,1\nb\n", "What is the average price in a.csv?", `a value of price is "", not a number`},
		{"a.csv", "name,price\na,1\nb\n", "What is the total price in a.csv?", `a value of price is "", not a number`},
		{"a.csv", "price\n1\n\n3\n", "What is the average price in a.csv?", "a.csv has an empty row"},
		{"a.csv", "price\n1\n3\n\n", "What is the average price in a.csv?", "2"},
		{"docs/b.txt", "x", "List files in docs/", `{"items":["b.txt"],"path":"DIR/workspace/docs/","recursive":false}`},
		{"a.csv", "price,price\n1,2\n", "What is the average price in a.csv?", "a.csv has several columns price"},
		{"a.csv", "Price,price\n1,5\n3,7\n", "What is the average price in a.csv?", "6"},
		{"a.csv", "Price,price\n1,5\n", "What is the average PRICE in a.csv?", "PRICE can mean Price, price"},
		{"a.csv", "name,price\na\u2028b,1\nc\x0cd,2\n", "What is the total price in a.csv?", "3"},
		{"a.csv", "name,price\n\"a\r\nb\",1\r\nc,2\r\n", "How many rows are in a.csv?", "2"},
		{"a.csv", "price\n0.1\n0.2\n", "What is the total price in a.csv?", "0.3"},
		{
			"a.csv", "a\n" + strings.Repeat("1", 140_000), "How many rows are in a.csv?",
			"a.csv is not CSV: field larger than field limit (131072)",
		},
		{"a.csv", "a,b\n1,\"x\n2,y\n", "How many rows are in a.csv?", "a.csv is not CSV: unexpected end of data"},
		{"a.txt", "a\u2028b\x0cc\r\nd", "How many lines are in a.txt?", "2"},
		{"a.txt", "a\u2028b\r\nc\r\n", "Find lines containing 'b' in a.txt", `["a\u2028b"]`},
		{"a.txt", "a\r\nb\r\n", "How many characters are in a.txt?", "6"},
		{"a.txt", "a\r\nb", "Append 'c' to a.txt. How big is a.txt?", `{"bytes":9,"file":"a.txt"}`},
		{"a.txt", "caf\xe9\n", "Read a.txt", "a.txt is not a text file"},
		{"my a.txt", "a b\n", "How many words are in 'my a.txt'?", "2"},
		{
			"a.csv", "name;amount\nA;1,50\n", "What is the average amount in a.csv?",
			"a.csv has a row with more values than its columns: name;amount",
		},
		{"a.json", strings.Repeat("[", 3000), "Read a.json", "a.json is nested too deeply"},
		{"a.json", `{"p": [19.990000000000000001], "n": 1}`, "Set n to 2 in a.json", "a.json would lose digits of the " +
			"number 19.990000000000000001; make it a text in quotes, or write code"},
		{"a.json", `{"p": 19.990000000000000001, "n": 1}`, "What is n in a.json?", "1"},
		{"a.json", `{"p": 19.990000000000000001}`, "Set p to 2 in a.json", `{"p":2}`},
		{
			"a.json", `{"n": 0.10000000000000001, "b": 1.7976931348623158e308, "c": 4.9e-324}`, "Increase n in a.json by 1",
			`{"b":1.7976931348623157e+308,"c":5e-324,"n":1.1}`,
		},
		{"a.json", `[[12345678901234567.25]]`, "Read a.json", "[[12345678901234568]]"},
		{"a.json", `{"big": 1e400}`, "What is big in a.json?", "a.json has the number 1e400, which is out of range; " +
			"make it a text in quotes, or write code"},
		{"a.json", `{"big": 1e-400}`, "What is big in a.json?", "a.json has the number 1e-400, which is out of range; " +
			"make it a text in quotes, or write code"},
		{"a.json", `{"a": 1e400, "a": 1}`, "Show the contents of a.json", `"{\"a\": 1e400, \"a\": 1}"`},
		{
			"a.json", `{"Contents": 1e400}`, "Show the contents of a.json",
			"a.json has a field Contents: name the field or the file",
		},
		{"a.json", `{"a": `, "Show the contents of a.json", `"{\"a\": "`},
		{"a.json", `{"big": -Infinity}`, "What is big in a.json?", "a.json is not JSON: -Infinity is no number"},
		{"a.json", `{"a": 1E2, "b": -0.10, "c": 0e5, "n": 1}`, "Set n to 2 in a.json", `{"a":100,"b":-0.1,"c":0,"n":2}`},
		{"a.json", `{"a": {"b": 1, "b": 2}}`, "Set n to 2 in a.json", "a.json has several fields b in one object"},
		{
			".workspaceignore", "# logs\n*.log\n/build/\n", "Write 'x' to a.log",
			"a.log would not be kept in the workspace; choose another name",
		},
		{
			".workspaceignore", "# logs\n*.log\n/build/\n", "Copy notes.txt to build/a.txt",
			"build/a.txt would not be kept in the workspace; choose another name",
		},
		{".workspaceignore", "# logs\n*.log\n/build/\n", "Copy notes.txt to build.txt", `"build.txt"`},
		{".workspaceignore", "logs/*.txt\n", "Copy notes.txt to logs/2026/a.txt", `"logs/2026/a.txt"`},
		{
			".workspaceignore", "logs/*.txt\n", "Copy notes.txt to logs/a.txt",
			"logs/a.txt would not be kept in the workspace; choose another name",
		},
		{
			".workspaceignore", "[^k]*.log\n", "Copy notes.txt to a.log",
			"a.log would not be kept in the workspace; choose another name",
		},
		{".workspaceignore", "[^k]*.log\n[!x].txt\n", "Copy notes.txt to k.log", `"k.log"`},
		{".workspaceignore", "\\*.txt\n[!x].txt\n[z-a]*\n[a\n", "Copy notes.txt to a.txt", `"a.txt"`},
		{
			".workspaceignore", "\\a[!\\-].tx[s-u]\n", "Copy notes.txt to a-.txt",
			"a-.txt would not be kept in the workspace; choose another name",
		},
		{
			"x", "", "Write 'x' to " + strings.Repeat("a", 300) + ".txt",
			strings.Repeat("a", 300) + ".txt: file name too long",
		},
	} {
		h := everydayHarness(t)
		h.write("workspace/"+c.file, c.content)
		result, output, err := h.try(c.task)
		got, _ := json.Marshal(result)
		if err != nil {
			lines := strings.Split(strings.TrimSpace(output), "\n")
			got = []byte(strings.TrimPrefix(lines[len(lines)-1], "Failure: "))
		}
		if got := strings.ReplaceAll(string(got), h.dir, "DIR"); got != c.want {
			t.Errorf("%q with %s %.40q = %s, want %s", c.task, c.file, c.content, got, c.want)
		}
	}
	_, output, _ := everydayHarness(t).try("How many files are there?")
	if !strings.Contains(output, "itself count, no hidden ones") {
		t.Errorf("number of files: printed %q, want it to say which files", output)
	}
	h := everydayHarness(t)
	h.write("workspace/a.json", `[{"p": 19.990000000000000001}]`)
	if _, output, err := h.try("Show a.json. Read a.json. Print it."); err != nil ||
		!strings.HasSuffix(output, "State: [{\"p\": 19.99}] (some numbers are rounded)\n") {
		t.Errorf("document with a rounded number: printed %q, %v", output, err)
	}
	for content, want := range map[string]string{
		"9007199254740993": "value: 9007199254740993\n",
		"9007199254740993.25\n0.5\n9007199254740993.25": "value: 18014398509481987\n",
		"9007199254740993.25":                           "value: 9007199254740994.0 (rounded)\n",
	} {
		h := everydayHarness(t)
		h.write("workspace/a.csv", "price\n"+content+"\n")
		if _, output, err := h.try("What is the total price in a.csv?"); output != want || err != nil {
			t.Errorf("total of %q: printed %q, %v, want %q", content, output, err, want)
		}
	}
}

// A link is deleted, moved or read only as its target allows.
func TestLinks(t *testing.T) {
	h := everydayHarness(t)
	for name, target := range map[string]string{"dangling.txt": "nothing.txt", "link.txt": "notes.txt"} {
		if err := os.Symlink(target, filepath.Join(h.dir, "workspace", name)); err != nil {
			t.Fatal(err)
		}
	}
	h.write("workspace/docs/a.txt", "x")
	for _, c := range []struct{ task, want string }{
		{"Delete dangling.txt", "fails dangling.txt is a link to nothing.txt, which does not exist"},
		{"Read dangling.txt", "fails dangling.txt is a link to nothing.txt, which does not exist"},
		{"Move link.txt to docs/", "fails link.txt is a link to notes.txt, which another directory may not have; " +
			"copy it instead"},
		{"Rename link.txt to other.txt", `"other.txt"`},
		{"Copy other.txt to docs/", `"docs/other.txt"`},
		{"Read docs/other.txt", `"one x\ntwo\n"`},
		{"Delete other.txt", `"other.txt"`},
		{"Read notes.txt", `"one x\ntwo\n"`},
	} {
		if got := outcomeIn(h, c.task); got != c.want {
			t.Errorf("%q = %s, want %s", c.task, got, c.want)
		}
	}
}

// Large integers are exact, because only short ones are passed to a calculator, which may use floats.
func TestLargeNumbers(t *testing.T) {
	for task, want := range map[string]string{
		"Calculate 9007199254740993 + 2":         "9007199254740993 + 2 = 9007199254740995\n",
		"Calculate 12345678901234567 * 3":        "12345678901234567 * 3 = 37037036703703701\n",
		"Calculate 123456789 * 987654321 * 1000": "123456789 * 987654321 * 1000 = 121932631112635269000\n",
		"Calculate 99999999 * 99999999":          "99999999 * 99999999 = 9999999800000001\n",
		// Only the result of a division is rounded.
		"Calculate 12345678901234567 * 3 / 3": "12345678901234567 * 3 / 3 = 12345678901234567\n",
		"square of 123456789":                 "123456789 ** 2 = 15241578750190521\n",
		"square root of 15241578750190521":    "square root of 15241578750190521 = 123456789\n",
		"Calculate 99999999 + 1":              "99999999 + 1 = 100000000\n",
		"Calculate 0.5 + 9007199254740993":    "0.5 + 9007199254740993 = 9007199254740994.0 (rounded)\n",
		"Calculate 0.1 + 0.2":                 "0.1 + 0.2 = 0.3\n",
	} {
		if _, output, err := newHarness(t, "18").try(task); err != nil || output != want {
			t.Errorf("%q printed %q, %v, want %q", task, output, err, want)
		}
	}
}

// The rules refuse ambiguous sentences.
func TestAmbiguousSentences(t *testing.T) {
	for _, task := range []string{
		"Calculate 4 + 4. For each of 2 and 3 multiply it by the result",
		"Calculate 4 + 4. For each of 2 and 3 calculate 2 * the result",
		"Calculate 5 + 3. If the result is above 5, multiply it by 2, otherwise add 1 to it. Add 5 to it.",
		"square of 5 plus 1", "square of 5 and 3", "half of 10%", "half of 10 and 20", "half of 1,5",
		"half of the users", "half of a million", "the quarter of 2026", "the third of 5", "third of March 2026",
		"square root of 2 + 2",
		"square root of -4", "square root of four and nine", "the square root of 144 squared",
		"Calculate 200 / 10% of 50", "200 divided by 10% of 50", "10% of 7 % 3", "10 of 250",
		"What day is 2026-11-22?", "What weekday is 2026-02-30?", "What weekday was 1492-10-12?",
		"What weekday is 01/02/2026?", "What weekday is 2026-01-15 plus 3?", "What weekday is March 1?",
		"What weekday is 2026-11-22 and double it", "What date is 30 days before 1753-01-15?",
		"subtract 3 from 10 times 2", "add 3 to 4 times 2", "what is -5 mod 3", "what is 5 % -3", "what is 2 * -5 % 3",
		"what is 2 ** 3 ** 2", "what is -2 ** 3 ** 2",
		"divide 10 by 2 plus 3", "divide 10 by 2+3", "multiply 3 by 2 plus 1", "double 5+1",
		"double (1 + 2) * (3 + 4)", "square 3 + 1",
		"What is the difference between 10 and 3 times 2", "What is the difference between 10% and 5%?",
		"the difference between 1,50 and 2", "the difference of 3 and 10",
		"Calculate 2026-03-01 - 2026-01-01", "What is 2026-01-15", "What is 12/25/2026", "Calculate 2026-01-15 + 30",
		"What is 1-2-26",
		"increase 10 by 3 times 2", "Increase 10 by a factor of 2", "Increase 10 by 3 percent points",
		"Decrease the count in the state", "Reduce count in state by 10%", "Reduce 9 to 3",
		"For each number in [1, 2], calculate 5 + 3", "For each number in [1, 2], double it and add 1",
		"For each of 1, 2, 3, double it, then add them up",
		"For each number in [1, 2], multiply it by 2 plus 1", "for each number from 5 to 1 double it",
		"for each number from 1 to 100000 double it", "for each number in [1, \"2\"] double it",
		"for each number in [1, null] double it", "for each number in [] double it",
		"For each number in 1,000 and 2 double it", "For each of 1, 2, 3 double it. Multiply it by 2.",
		"For each user in the database double the age", "For each city in the database get the weather",
		"For each of the cities in the database and the file get the weather", "multiply each of 1, 2 by 2 plus 1",
		"What day is 30 days after 2026-01-15?", "What date is 30 days after 01/02/2026?",
		"What date is 30 days after 2026-02-30?", "What date is 1 month after 2026-01-31?",
		"What date is 30 business days after 2026-01-15?", "Subtract 2 weeks to 2026-01-15",
		"What date is 30 days after 9999-12-31", "What date is 3 days after 2026-01-15, then add 5 to it",
		"Calculate 3 + 4. What date is 2 days after 2026-01-01? Multiply the result by 2.",
		"How many days between 2026-03-01 and 2026-01-01?", "How many days between March 1 and March 5",
		"How many days between 2026-01-01 and 2026-03-01 inclusive?",
		"How many business days between 2026-01-01 and 2026-03-01?", "How many days from 0000-01-01 to 2026-01-01",
	} {
		p, err := Write(codegen.Request{Task: task, Tools: shippedTools()})
		if _, required := errors.AsType[*codegen.CodeRequiredError](err); !required {
			t.Errorf("%q: %v, want code_required; the program is\n%s", task, err, p.Code)
		}
	}
}

// With "next" or "start of", a day or a season that is now is not meant.
func TestNextDay(t *testing.T) {
	for task, want := range map[string]string{
		"How many days until Christmas?":            "days_until(12, 25, False)",
		"How many days until next Christmas?":       "days_until(12, 25, True)",
		"How many days until summer?":               `days_until_season("summer", False)`,
		"How many days until next summer?":          `days_until_season("summer", True)`,
		"How many days until the start of summer?":  `days_until_season("summer", True)`,
		"How many days to the beginning of winter?": `days_until_season("winter", True)`,
	} {
		if p, err := Write(codegen.Request{Task: task}); err != nil || !strings.Contains(p.Code, want) {
			t.Errorf("%q: %v, want %s in\n%s", task, err, want, p.Code)
		}
	}
}
