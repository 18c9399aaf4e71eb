package rules

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// pythonLiteral writes a JSON value as Python.
func pythonLiteral(raw string) (string, bool) {
	decoder := json.NewDecoder(strings.NewReader(raw))
	decoder.UseNumber()
	var b strings.Builder
	if !writeValue(&b, decoder) || decoder.More() {
		return "", false
	}
	return b.String(), true
}

// writeValue writes one value token by token, which keeps the order of keys.
func writeValue(b *strings.Builder, d *json.Decoder) bool {
	token, err := d.Token()
	if err != nil {
		return false
	}
	switch v := token.(type) {
	case json.Delim:
		return writeContainer(b, d, v)
	case string:
		b.WriteString(quote(v))
	case json.Number:
		b.WriteString(v.String())
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case nil:
		b.WriteString("None")
	}
	return true
}

func writeContainer(b *strings.Builder, d *json.Decoder, open json.Delim) bool {
	b.WriteString(open.String())
	for first := true; d.More(); first = false {
		if !first {
			b.WriteString(", ")
		}
		if !writeValue(b, d) {
			return false
		}
		if open == '{' {
			b.WriteString(": ")
			if !writeValue(b, d) {
				return false
			}
		}
	}
	if _, err := d.Token(); err != nil {
		return false
	}
	b.WriteRune(rune(open) + 2) // in ASCII, } is { + 2 and ] is [ + 2
	return true
}

// quote returns a text as a Python string literal.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// comment returns a text as a Python comment of one line and at most 160 characters of text.
func comment(s string) string {
	s = text.OneLine(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s))
	if runes := []rune(s); len(runes) > 160 {
		s = string(runes[:159]) + "…"
	}
	return "# " + s
}

// helpers are Python functions. A program contains those that it uses. A function may call earlier ones.
var helpers = []struct {
	name, imports, code string
}{
	{"number", "", `def number(value):
    """The number in a tool's result; an int if it is a whole number."""
    if isinstance(value, dict):
        value = value["result"] if "result" in value else value["value"]
    if isinstance(value, int):
        return value
    value = float(value)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
`},
	{"square_root", "math", `def square_root(value):
    """The square root of a number; an int if it is a whole number."""
    root = math.sqrt(value)
    return int(root) if root.is_integer() and int(root) ** 2 == value else root
`},
	{"show", "json", `def show(label, value):
    print(label + ":", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
`},
	{"text_of", "", `def text_of(value):
    """The text in a tool's result."""
    return value["content"] if isinstance(value, dict) else value
`},
	{"field", "", `def field(record, name):
    """The field of a tool's result with a name, ignoring case."""
    for key, value in record.items():
        if key.lower() == name:
            return value
    raise KeyError("no field %s; valid fields: %s" % (name, ", ".join(record)))
`},
	{"rows_of", "", `def rows_of(value):
    """The rows in a query's result."""
    rows = value["rows"] if isinstance(value, dict) else value
    return [dict(row) for row in rows]
`},
	{"marked", "", `def marked(rows, word):
    """The rows that a word describes: by a column of that name (active, is_active), by the columns status or state,
    or by the only column with that value."""
    if not rows:
        return []
    names = {str(key).lower(): key for row in rows for key in row}
    yes = ("1", "1.0", "true", "yes", "y", "t", word)
    for name in (word, "is_" + word):
        if name in names:
            return [row for row in rows if str(row.get(names[name])).lower() in yes]
    if word[:2] in ("in", "un") and (word[2:] in names or "is_" + word[2:] in names):
        others = marked(rows, word[2:])
        return [row for row in rows if row not in others]
    says = [key for key in names.values() if any(str(row.get(key)).lower() == word for row in rows)]
    columns = [names[name] for name in ("status", "state") if name in names] or says
    if len(columns) != 1:
        raise ValueError("the columns %s do not show which rows are %s" % (", ".join(map(str, names.values())), word))
    return [row for row in rows if str(row.get(columns[0])).lower() == word]
`},
	{"statistics_of", "statistics", `def statistics_of(rows):
    """The number of rows, and the minimum, maximum, mean, median and sum of each numeric column."""
    found = {"count": len(rows)}
    for key in dict.fromkeys(key for row in rows for key in row):
        name = str(key).lower()
        if name in ("id", "active", "enabled", "deleted") or name.endswith("_id") or name.startswith(("is_", "has_")):
            continue
        values = [row[key] for row in rows if row.get(key) is not None]
        if values and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
            found[key] = {"min": min(values), "max": max(values), "mean": statistics.fmean(values),
                          "median": statistics.median(values), "sum": sum(values)}
    return found
`},
	{"days_until", "datetime", `def days_until(month, day):
    """The days from today to the next day with this month and day; 0 if that is today."""
    today = datetime.date.today()
    target = datetime.date(today.year, month, day)
    if target < today:
        target = datetime.date(today.year + 1, month, day)
    return (target - today).days
`},
	{"days_until_season", "datetime", `def days_until_season(season):
    """The days until the season begins in the northern hemisphere; 0 during the season."""
    first_days = {"spring": (3, 20), "summer": (6, 21), "autumn": (9, 22), "winter": (12, 21)}
    today = datetime.date.today()
    now = [name for name, day in first_days.items() if (today.month, today.day) >= day]
    if (now[-1] if now else "winter") == season:
        return 0
    start = datetime.date(today.year, *first_days[season])
    return ((start if start > today else start.replace(year=today.year + 1)) - today).days
`},
	{"load", "json pathlib", `def load(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
`},
	{"load_or_new", "pathlib", `def load_or_new(path):
    return load(path) if pathlib.Path(path).exists() else {}
`},
	{"save", "json pathlib", `def save(path, value):
    file = pathlib.Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print("Saved", path)
`},
}

// set is a set of strings.
type set map[string]bool

func (s set) sorted() []string { return slices.Sorted(maps.Keys(s)) }
