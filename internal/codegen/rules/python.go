package rules

import (
	"bytes"
	"encoding/json"
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

// writeValue writes one value from the tokens, so that the order of keys is kept.
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
	b.WriteRune(rune(open) + 2) // ASCII: } is { + 2, ] is [ + 2
	return true
}

// quote writes a Python string.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// comment returns any text as one line of comment.
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

// helpers are functions that a program contains only if it uses them. Each may use earlier ones.
var helpers = []struct {
	name, imports, code string
}{
	{"number", "", `def number(value):
    """The number in a tool's answer; whole numbers without a fraction."""
    if isinstance(value, dict):
        value = value["result"] if "result" in value else value["value"]
    if isinstance(value, int):
        return value
    value = float(value)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
`},
	{"square_root", "math", `def square_root(value):
    """The root of a number; a whole number if it is one."""
    root = math.sqrt(value)
    return int(root) if root.is_integer() and int(root) ** 2 == value else root
`},
	{"show", "json", `def show(label, value):
    print(label + ":", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
`},
	{"text_of", "", `def text_of(value):
    """The text in a tool's answer."""
    return value["content"] if isinstance(value, dict) else value
`},
	{"field", "", `def field(record, name):
    """A field of a tool's answer by its name, in any spelling of upper and lower case."""
    for key, value in record.items():
        if key.lower() == name:
            return value
    raise KeyError("no field %s, there are: %s" % (name, ", ".join(record)))
`},
	{"rows_of", "", `def rows_of(value):
    """The rows in a query's answer."""
    rows = value["rows"] if isinstance(value, dict) else value
    return [dict(row) for row in rows]
`},
	{"marked", "", `def marked(rows, word):
    """The rows that are so: by a column of that name (active, is_active), a status or state that says it,
    or the only column that ever says it."""
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
        known = ", ".join(map(str, names.values()))
        raise ValueError("cannot tell which rows are %s from the columns %s" % (word, known))
    return [row for row in rows if str(row.get(columns[0])).lower() == word]
`},
	{"statistics_of", "statistics", `def statistics_of(rows):
    """The number of rows, and for each column of quantities its least, greatest, mean, median and sum."""
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
    """Days from today to the next such day; 0 today."""
    today = datetime.date.today()
    target = datetime.date(today.year, month, day)
    if target < today:
        target = datetime.date(today.year + 1, month, day)
    return (target - today).days
`},
	{"days_until_season", "datetime", `def days_until_season(season):
    """Days to the season's first day on the northern hemisphere; 0 while it lasts."""
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

// set is a set of strings with a sorted listing.
type set map[string]bool

func (s set) sorted() []string {
	var out []string
	for k := range s {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
