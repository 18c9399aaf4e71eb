class Failure(Exception):
    """The program cannot do what the task asks, for the reason in the message."""


def display_path(path):
    """A path for a message: relative to the workspace if it is inside."""
    path = str(path)
    return path[len("/workspace/"):] if path.startswith("/workspace/") else path


def explained(error):
    """The error as a Failure with a short message, if it is about a file, the database or a tool."""
    if isinstance(error, OSError) and error.strerror:
        file = display_path(error.filename) + ": " if error.filename else ""
        return Failure(file + error.strerror[:1].lower() + error.strerror[1:])
    if isinstance(error, OSError) or type(error).__module__ in ("client.mcp_client", "sqlite3"):
        return Failure(str(error))
    return error


def listed(names):
    """Names as a list for a message."""
    names = [str(name) for name in names]
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "") if names else "none"


def repeated(names):
    """The first name that occurs again, or None."""
    seen = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def with_parts(value):
    """A value and, if it is a document, all values in it."""
    values = [value]
    for part in values:
        values += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return values


def show(label, value):
    """Prints a value. After a document with rounded numbers, it says so."""
    plain = isinstance(value, str) or hasattr(value, "fraction")
    rounded = not plain and any(hasattr(part, "fraction") for part in with_parts(value))
    print(label + ":", value if plain else json.dumps(value, ensure_ascii=False, default=str),
          *["(some numbers are rounded)"] if rounded else ())


class Rounded(float):
    """A rounded number. fraction is the exact value, or None if there is none, as for a root. text is the number as a
    file has it, or None."""

    def __new__(cls, value, fraction=None, text=None):
        number = super().__new__(cls, value)
        number.fraction, number.text = fraction, text
        return number

    def __str__(self):
        return float.__repr__(self) + " (rounded)"


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def as_number(value, what):
    """A number. A whole number has no fraction."""
    if not is_number(value):
        raise Failure("%s is %s, not a number" % (what, json.dumps(value, ensure_ascii=False, default=str)[:100]))
    if isinstance(value, int) or not math.isfinite(value) or hasattr(value, "fraction"):
        return value
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def number_of(value, what):
    """The number in a tool's result."""
    if isinstance(value, dict):
        if "result" in value and "value" in value:
            raise Failure("%s has both a result and a value" % what)
        value = value.get("result", value.get("value"))
    return as_number(value, what)


def exact(value):
    """A number as a fraction. A decimal number is what it prints, unless it is rounded."""
    value = as_number(value, "a value")
    if isinstance(value, float) and not math.isfinite(value):
        raise Failure("%s is not a finite number" % value)
    if hasattr(value, "fraction"):
        if value.fraction is None:
            raise Failure("%r is rounded: the value of a calculation with it may be wrong" % value)
        return value.fraction
    return fractions.Fraction(value if isinstance(value, int) else str(value))


def is_exact(text):
    """Whether a float holds all digits of a decimal number."""
    def digits(number):
        return number.strip().lower().partition("e")[0].replace(".", "").strip("+-0")

    return digits(text) == digits(str(float(text)))


def difference(value, limit):
    """The difference of two numbers; 0 if it is within the rounding of a decimal number."""
    if getattr(value, "fraction", 0) is None:
        value = float(value)
    apart = exact(value) - exact(limit)
    if not limit and 0 < abs(apart) < 1e-12:
        raise Failure("%s is too close to 0 for a comparison" % value)
    rounded = isinstance(value, float) or isinstance(limit, float)
    return 0 if rounded and abs(apart) * 10**12 <= abs(limit) else apart


def decimal_of(fraction):
    """A fraction as a decimal number."""
    value = float(fraction)
    return value if fractions.Fraction(str(value)) == fraction else Rounded(value, fraction)


def calculated(compute, what):
    """The value of a calculation."""
    try:
        value = compute()
        if isinstance(value, fractions.Fraction):
            whole = value.denominator == 1
            if not whole and not float(value):
                raise Failure("cannot calculate %s: the value is too small" % what)
            value = int(value) if whole else decimal_of(value)
        elif isinstance(value, float) and not value.is_integer():
            value = Rounded(value)
        value = number_of(value, what)
        if isinstance(value, int) and value.bit_length() > 14000:
            raise OverflowError
        return value
    except ZeroDivisionError:
        raise Failure("cannot calculate %s: division by zero" % what) from None
    except OverflowError:
        raise Failure("cannot calculate %s: the value is too large" % what) from None


def square_root(value):
    """The square root of a number, exact if it is a whole number."""
    value = exact(value)
    root = fractions.Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    return calculated(lambda: root if root * root == value else Rounded(math.sqrt(value)), "the square root")


def check_claim(value, claim, text):
    """Stops when the task claims another value."""
    if difference(value, claim):
        raise Failure("the task says %s = %s, but it is %s" % (text, claim, value))


def file_at(path):
    """A file that exists."""
    file = pathlib.Path(path)
    if file.is_dir():
        raise Failure("%s is a directory, not a file" % display_path(path))
    if file.is_symlink() and not file.exists():
        raise Failure("%s is a link to %s, which does not exist" % (display_path(path), file.readlink()))
    if not file.is_file():
        there = sorted(f.name for f in file.parent.iterdir()) if file.parent.is_dir() else []
        raise Failure("%s does not exist; its directory has: %s" % (display_path(path), listed(there)))
    return file


def existing(path):
    """A path that exists."""
    if not pathlib.Path(path).exists():
        raise Failure("%s does not exist" % display_path(path))
    print(display_path(path), "exists")
    return path


def read_text(path):
    try:
        return file_at(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise Failure("%s is not a text file" % display_path(path)) from None


def lines_of(path):
    """The lines of a text file, without their ends."""
    lines = read_text(path).split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def text_of(value):
    """The text in a tool's result."""
    value = value.get("content") if isinstance(value, dict) else value
    if not isinstance(value, str):
        raise Failure("the tool returned no text")
    return value


def matches(path, pattern):
    """Whether a pattern of .workspaceignore matches, as in Go's path.Match, which commits use."""
    out = ""
    for part in re.findall(r"\\.|\[\^?(?:\\.|[^\]\\])+\]|.", pattern):
        if part in "*?":
            out += "[^/]" + part.replace("?", "")
        elif len(part) > 2:
            negated, members = part[1] == "^", part[1:-1].removeprefix("^")
            out += ("[^" if negated else "[") + re.sub(r"\\(.)|([^-])", lambda m: re.escape(m[1] or m[2]), members) + "]"
        elif part in "[\\":  # the pattern is invalid
            return False
        else:
            out += re.escape(part[-1])
    try:
        return re.fullmatch(out, path) is not None
    except re.error:
        return False


def kept(path):
    """The path, if commits of the workspace include it: it is neither ignored nor in one of the fleet's directories."""
    rules = ["/servers", "/client", "/lost+found", "__pycache__", ".venv/", "node_modules/"]
    ignored = pathlib.Path("/workspace/.workspaceignore")
    if ignored.is_file():
        rules += [rule.strip() for rule in ignored.read_text(encoding="utf-8", errors="replace").split("\n")]
    if path.endswith("/"):
        raise Failure("%s is a directory, not a file" % display_path(path))
    parts = display_path(path).split("/")
    for end in range(1, len(parts) + 1):
        for rule in rules:
            pattern = rule.removesuffix("/")
            subject = "/".join(parts[:end]) if "/" in pattern else parts[end - 1]
            if pattern and rule[0] != "#" and (end < len(parts) or rule[-1] != "/") \
                    and matches(subject, pattern.removeprefix("/")):
                raise Failure("%s would not be kept in the workspace; choose another name" % display_path(path))
    return path


def free(path):
    """The path, if it does not exist yet and commits of the workspace include it."""
    if pathlib.Path(path).exists():
        raise Failure("%s exists already; say overwrite to replace it" % display_path(path))
    return kept(path)


def check_unlike(path, text):
    """Stops if a text would replace another file."""
    if not pathlib.Path(path).exists() or file_at(path).read_bytes() != text.encode():
        free(path)


def check_text(path, text):
    """Reads a written file back."""
    if read_text(path) != text:
        raise Failure("%s does not hold what was written" % display_path(path))
    print("Wrote", display_path(path))


def write_text(path, text, mode="wb"):
    file = pathlib.Path(path)
    if file.is_dir():
        raise Failure("%s is a directory, not a file" % display_path(path))
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Failure("the text for %s has half a character: %s" % (display_path(path), error)) from None
    pathlib.Path(kept(path)).parent.mkdir(parents=True, exist_ok=True)
    with file.open(mode) as out:
        out.write(data)


def append_text(path, text):
    """Adds a line to a file, which may be missing, and returns its path."""
    old = read_text(path) if pathlib.Path(path).exists() else ""
    end = "\r\n" if "\r\n" in old else "\n"
    new = ("" if old.endswith("\n") or not old else end) + text + end
    write_text(path, new, "ab")
    check_text(path, old + new)
    return display_path(path)


def place_of(source, target):
    """The path to which a file is copied or moved, which must not exist yet: the target, or in it if it is a directory."""
    file = pathlib.Path(target)
    if file.is_dir():
        file = file / pathlib.Path(source).name
    elif target.endswith("/") or pathlib.Path(source).suffix and not file.suffix:
        raise Failure("%s is not a directory" % display_path(target))
    return free(str(file))


def copy_file(source, target, replace=False):
    data = file_at(source).read_bytes()
    target = kept(target) if replace else place_of(source, target)
    file = pathlib.Path(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    if file.read_bytes() != data:
        raise Failure("%s does not hold what was written" % display_path(target))
    print("Copied", display_path(source), "to", display_path(target))
    return display_path(target)


def move_file(source, target):
    file = file_at(source)
    target = place_of(source, target)
    if file.is_symlink() and not file.readlink().is_absolute() and file.parent != pathlib.Path(target).parent:
        raise Failure("%s is a link to %s, which another directory may not have; copy it instead"
                      % (display_path(source), file.readlink()))
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    file.rename(target)
    print("Moved", display_path(source), "to", display_path(target))
    return display_path(target)


def delete_file(path):
    file_at(path).unlink()
    print("Deleted", display_path(path))
    return display_path(path)


def files_in(path):
    """The names of a directory's files."""
    directory = pathlib.Path(path)
    if not directory.is_dir():
        raise Failure("%s is not a directory" % display_path(path))
    hidden = ("servers", "client", "lost+found")
    return sorted(f.name for f in directory.iterdir()
                  if f.is_file() and not f.name.startswith(".") and f.name not in hidden)


def count_files(path):
    """The number of a directory's files."""
    count = len(files_in(path))
    print("Only files in %s itself count, no hidden ones." % display_path(path))
    return count


def lines_with(path, text):
    return [line for line in lines_of(path) if text in line]


def load(path):
    """The document in a JSON file."""
    text = read_text(path)
    if not text.strip():
        raise Failure("%s is empty" % display_path(path))

    def number(text):
        value, digits = float(text), text.lower().partition("e")[0].replace(".", "").strip("-0")
        if not math.isfinite(value) or digits and not value:
            raise Failure("%s has the number %s, which is out of range; make it a text in quotes, or write code"
                          % (display_path(path), text[:60]))
        # Other programs write up to 17 digits for a float.
        return Rounded(value, fractions.Fraction(text), text) if len(digits) > 17 else value

    def fields(pairs):
        twice = repeated(name for name, _ in pairs)
        if twice is not None:
            raise Failure("%s has several fields %s in one object" % (display_path(path), twice))
        return dict(pairs)

    def constant(name):
        raise ValueError("%s is no number" % name)

    try:
        return json.loads(text, parse_float=number, object_pairs_hook=fields, parse_constant=constant)
    except ValueError as error:
        raise Failure("%s is not JSON: %s" % (display_path(path), error)) from None
    except RecursionError:
        raise Failure("%s is nested too deeply" % display_path(path)) from None


def name_in(names, name):
    """The one of names that is name, or else the only one that is in another case, or else None."""
    found = [key for key in names if str(key).lower() == name.lower()]
    if name in found or not found:
        return name if found else None
    if len(found) > 1:
        raise Failure("%s can mean %s" % (name, listed(found)))
    return found[0]


def whole(document, words, of):
    """A document, unless one of the words may mean one of its fields."""
    for word in words:
        key = name_in(document, word) if isinstance(document, dict) else None
        if key is not None:
            raise Failure("%s has a field %s: name the field or the file" % (of, key))
    return document


def text_file(path, word=""):
    """The path of a text file. If it is JSON, the word may mean a field."""
    text = read_text(path)
    if word and path.endswith(".json"):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return path
        whole(document, [word], display_path(path))
    return path


def load_or_new(path):
    """The object in a JSON file; a missing file is an empty object."""
    document = load(path) if pathlib.Path(path).exists() else {}
    if not isinstance(document, dict):
        raise Failure("%s holds no object with fields" % display_path(path))
    return document


def named(document, name, of):
    """The key of a field that may be new."""
    key, outer = name_in(document, name), name.partition(".")[0]
    if key is None and outer != name and name_in(document, outer) is not None:
        raise Failure("%s has no field %s, only %s" % (of, name, outer))
    return name if key is None else key


def with_fields(document, value, path):
    """An object with the fields of value. Its other fields stay, also those of objects in it."""
    fields = {named(document, name, display_path(path)): new for name, new in value.items()}
    if len(fields) < len(value):
        raise Failure("fields for %s differ only in case: %s" % (display_path(path), listed(value)))
    for name, new in fields.items():
        if isinstance(new, dict) and isinstance(document.get(name), dict):
            fields[name] = with_fields(document[name], new, path)
    return {**document, **fields}


def merged(path, value):
    """The document of a JSON file with the fields of value; its other fields stay."""
    if not pathlib.Path(path).exists():
        return value
    document = load(path)
    if document == value:
        return value
    if not isinstance(document, dict) or not isinstance(value, dict):
        raise Failure("%s holds something else already; say overwrite to replace it" % display_path(path))
    return with_fields(document, value, path)


def check_saved(path, value):
    """Stops unless a JSON file holds a value."""
    if load(path) != json.loads(json.dumps(value)):
        raise Failure("%s does not hold what was saved" % display_path(path))


def save(path, value):
    """Writes a JSON file and reads it back. A number from a file keeps all digits."""
    for part in with_parts(value):
        if getattr(part, "text", None):
            raise Failure("%s would lose digits of the number %s; make it a text in quotes, or write code"
                          % (display_path(path), part.text[:60]))
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError:
        raise Failure("a value for %s is not a finite number" % display_path(path)) from None
    write_text(path, text)
    check_saved(path, value)
    print("Saved", display_path(path))


def field_key(record, name, of):
    """The key of a field by its name, or else by its name in another case."""
    names = record if isinstance(record, dict) else []
    key = name_in(names, name)
    if key is None:
        raise Failure("%s has no field %s; its fields are: %s" % (of, name, listed(names)))
    return key


def field(record, name, of):
    return record[field_key(record, name, of)]


def check_fields(document, names, of):
    for name in names:
        field(document, name, of)


def list_field(document, name, of):
    """A field that holds a list."""
    value = field(document, name, of)
    if not isinstance(value, list):
        raise Failure("the field %s of %s is not a list" % (name, of))
    return value


def change(document, name, by, of):
    """Adds to a field that holds a number."""
    key = field_key(document, name, of)
    old = as_number(document[key], "the field %s of %s" % (key, of))
    value = calculated(lambda: exact(old) + exact(by), "the field %s of %s" % (key, of))
    if hasattr(value, "fraction"):
        raise Failure("the field %s of %s would lose digits: it would be %s" % (key, of, value))
    document[key] = value


def put(document, name, value, of):
    """Sets a field."""
    if not isinstance(document, dict):
        raise Failure("%s holds no object with fields" % of)
    document[named(document, name, of)] = value


def check_differ(name, other):
    """Stops if a task sets one field twice."""
    if name.lower() == other.lower():
        raise Failure("the task sets %s twice" % other)


def put_new(document, name, value, of, by=""):
    """Sets a field that does not exist yet, or has this value. A total is replaced by the sum."""
    old = name_in(document, name) if isinstance(document, dict) else None
    if (name.lower(), by.lower()) != ("total", "sum") and old is not None and json.dumps(document[old]) != json.dumps(value):
        raise Failure("%s already has a field %s; name it with save or set to replace it" % (of, old))
    put(document, name, value, of)


def added(path, value):
    """The document of a JSON file with new fields: those of value."""
    if not pathlib.Path(path).exists():
        return value
    document = load(path)
    if not isinstance(document, dict) or not isinstance(value, dict):
        return merged(path, value)
    for name, new in value.items():
        put_new(document, name, new, display_path(path))
    return document


def remove(document, name, of):
    del document[field_key(document, name, of)]


def measure(values, name, what):
    """A measure of numbers."""
    values = [exact(as_number(value, "a value of " + what)) for value in values]
    if not values and name != "sum":
        raise Failure("there are no values of %s" % what)
    compute = {"sum": sum, "product": math.prod, "min": min, "max": max, "mean": statistics.mean,
               "median": statistics.median}[name]
    return calculated(lambda: compute(values), "the %s of %s" % (name, what))


def rows_of(ask):
    """The rows in a query's result."""
    try:
        value = ask()
    except sqlite3.Error as error:
        raise Failure("cannot query the database: %s" % error) from None
    rows = value.get("rows") if isinstance(value, dict) else value
    if not isinstance(rows, list):
        raise Failure("the query returned no rows")
    if not all(isinstance(row, dict) for row in rows):
        raise Failure("the query returned rows without the names of their columns")
    return rows


def columns_of(rows, table):
    """The names of a table's columns."""
    if not rows:
        raise Failure("%s has no rows: its columns are unknown" % table)
    return sorted(dict.fromkeys(key for row in rows for key in row))


def table_rows(ask, table):
    """All rows of a table."""
    rows = rows_of(lambda: ask(sql='SELECT * FROM "%s"' % table))
    print("Rows of", table + ":", len(rows))
    return rows


def csv_rows(path):
    """The rows of a CSV file with a header. Values that are numbers are converted."""
    reader = csv.DictReader(io.StringIO(read_text(path).lstrip("\ufeff"), newline=""), restval="", strict=True)
    try:
        rows, names = list(reader), reader.fieldnames or []
    except csv.Error as error:
        raise Failure("%s is not CSV: %s" % (display_path(path), error)) from None
    if not rows:
        raise Failure("%s has no rows below a header" % display_path(path))
    if len(names) == 1 and not all(line.strip() for line in read_text(path).strip().split("\n")):
        raise Failure("%s has an empty row" % display_path(path))
    twice = repeated(names)
    if twice is not None:
        raise Failure("%s has several columns %s" % (display_path(path), twice))
    if any(any(row.pop(None, None) or []) for row in rows):
        raise Failure("%s has a row with more values than its columns: %s" % (display_path(path), listed(names)))

    def read(text):
        if not text or not text.isascii() or "_" in text:
            return text
        for kind in (int, float):
            try:
                number = kind(text)
                if kind is int or math.isfinite(number) and is_exact(text):
                    return as_number(number, text)
                if math.isfinite(number) and number:
                    return Rounded(number, fractions.Fraction(text), text)
                return text
            except ValueError:
                continue
        return text

    return [{key: read(text) for key, text in row.items()} for row in rows]


def column(rows, name):
    """The values of a column; a missing value is None."""
    names = dict.fromkeys(key for row in rows for key in row)
    key = name_in(names, name)
    if rows and key is None:
        raise Failure("the rows have no column %s; their columns are: %s" % (name, listed(names)))
    return [row.get(key) for row in rows]


def say_missing(name, missing, rows):
    if missing:
        print("Rows without a value of %s: %d of %d" % (name, missing, len(rows)))


def column_values(rows, name):
    """The values of a column, without missing ones."""
    values = [value for value in column(rows, name) if value is not None]
    if rows and not values:
        raise Failure("there are no values of %s" % name)
    say_missing(name, len(rows) - len(values), rows)
    return values


def compared(rows, name, compare, limit):
    """The rows whose column satisfies a comparison with a limit."""
    found, missing = [], 0
    for row, value in zip(rows, column(rows, name)):
        if value is None:
            missing += 1
            continue
        if is_number(value) != is_number(limit):
            raise Failure("the column %s has the value %s, which cannot be compared with %s" % (name, value, limit))
        if compare(value):
            found.append(row)
    say_missing(name, missing, rows)
    return found


def chosen(kept, rows):
    """The rows that are kept."""
    print("Rows kept:", len(kept), "of", len(rows))
    return kept


def sorts_as_text(texts):
    """Whether texts that begin with digits have the order of their numbers when they are sorted as text. Dates such as
    2026-01-31 and times sort as text if all have one form."""
    misleading = re.compile(
        r"\W*[-−]\W*\d|\W*\d{1,3}([.,' ]\d{3})+(?!\d)"  # a negative number, or one with separators
        r"|\W*\d\d?([./-])\d\d?\2\d|\W*\d\d?[./-]\d{4}\b|\W*\d\d?/\d\d?\b"  # a date such as 31.1.2026, 1/2026 or 1/31
        r"|.*\d\W*(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\W*(\d|$)|.*\d\s*[ap]\.?m\b", re.I | re.S)
    if any(misleading.match(text) for text in texts):
        return False
    if all(re.fullmatch("[0-9a-f-]{6,}", text, re.I) for text in texts) and len({len(text) for text in texts}) == 1:
        return True  # identifiers
    if any(re.search(r"\d:\d\d", text) for text in texts):
        offsets = {re.split(r"\d:\d\d[\d.:]*", text, maxsplit=1)[-1] for text in texts}
        if len(offsets) > 1 or len({re.sub(r"\d", "0", text) for text in texts}) > 1:
            return False
    units = [re.fullmatch(r"\W*\d[\d.,]*\s*([^\W\d_]+|%)?", text) for text in texts]
    if all(units) and len({unit[1] for unit in units}) > 1:
        return False

    def numbers(text):
        parts = re.split("([0-9]+)", re.sub(r"^[\W_]*", "", text))
        return [(len(part.lstrip("0")), part.lstrip("0")) if i % 2 else part for i, part in enumerate(parts)]

    return sorted(texts) == sorted(sorted(texts), key=numbers)


def check_order(values, name):
    """Stops if texts begin with digits, and their order may be that of numbers or dates."""
    texts = dict.fromkeys(value for value in values if isinstance(value, str))
    found = [text for text in texts if re.match(r"[\W_]*\d", text)]
    if len(found) > 1 and not sorts_as_text(found):
        raise Failure("the column %s has the texts %s: their order may be that of numbers or dates"
                      % (name, listed(found[:2])))


def ordered(rows, name, reverse):
    """The rows sorted by a column. Rows without a value come last."""
    pairs = list(zip(column(rows, name), rows))
    check_order((value for value, _ in pairs), name)
    try:
        there = sorted((p for p in pairs if p[0] is not None), key=lambda p: p[0], reverse=reverse)
    except TypeError:
        raise Failure("the column %s has numbers and text: it has no order" % name) from None
    return [row for _, row in there] + [row for value, row in pairs if value is None]


def marked(rows, word):
    """The rows to which a word such as active applies: by a column active or is_active with yes and no, or by a column
    status or state with the value active. No other column may tell it, too."""
    families = ("active inactive enabled disabled blocked deleted archived open closed",
                "published draft archived deleted", "approved rejected pending",
                "open closed pending done completed complete finished started stopped running failed succeeded "
                "cancelled")
    opposite = word[2:] if word.startswith("in") else None
    related = {word, opposite}.union(*(family.split() for family in families if word in family.split()))
    names = dict.fromkeys(key for row in rows for key in row)
    if not rows:
        return []

    def plain(value):
        return str(value).strip().lower()

    def fail(why):
        raise Failure("cannot tell which rows are %s: %s" % (word, why))

    def flag(name):
        return plain(name).removeprefix("is_")

    told = [name for name in names if flag(name) in related or any(plain(row.get(name)) in related for row in rows)]
    if len(told) > 1:
        fail(" and ".join(map(str, told)) + " may say so")
    values = [row.get(told[0]) for row in rows] if told else []
    by_name = told and flag(told[0]) in (word, opposite)
    if not by_name and not (told and plain(told[0]) in ("status", "state") and word in map(plain, values)):
        fail("no column says so; the columns are: %s" % listed(names))
    for missing, what in ((lambda value: value is None, "NULL"), (lambda value: plain(value) == "", "empty")):
        count = sum(map(missing, values))
        if count:
            raise Failure("the column %s is %s in %d row%s" % (told[0], what, count, "s" if count > 1 else ""))
    if not by_name:
        return [row for row, value in zip(rows, values) if plain(value) == word]
    for value in values:
        if plain(value) not in ("1", "1.0", "true", "yes", "0", "0.0", "false", "no"):
            raise Failure("the column %s has the value %s, neither yes nor no" % (told[0], value))
    so = flag(told[0]) == word
    return [row for row, value in zip(rows, values) if (plain(value) in ("1", "1.0", "true", "yes")) == so]


def statistics_of(rows):
    """The number of rows, and for each column of quantities its least, greatest, mean, median and sum."""
    found = {"count": len(rows)}
    others = []
    for key in dict.fromkeys(key for row in rows for key in row):
        name = str(key).lower()
        no_quantity = (name in ("id", "active", "enabled", "deleted") or name.endswith("_id")
                       or name.startswith(("is_", "has_")))
        values = [row[key] for row in rows if row.get(key) is not None]
        if no_quantity or not values or not all(is_number(value) for value in values):
            others.append(key)
        else:
            found[key] = {name: measure(values, name, key) for name in ("min", "max", "mean", "median", "sum")}
            if len(values) < len(rows):
                found[key]["missing"] = len(rows) - len(values)
    if others:
        print("Columns without statistics:", listed(others))
    return found


def days_until(month, day, later):
    """The days from today to the next such date; 0 if it is today, unless the task says next."""
    today = datetime.date.today()
    target = datetime.date(today.year, month, day)
    if target < today or later and target == today:
        target = datetime.date(today.year + 1, month, day)
    return (target - today).days


def days_until_season(season, later):
    """Days to the season's first day on the northern hemisphere; 0 while it lasts, unless the task says next."""
    first_days = {"spring": (3, 20), "summer": (6, 21), "autumn": (9, 22), "winter": (12, 21)}
    today = datetime.date.today()
    now = [name for name, day in first_days.items() if (today.month, today.day) >= day]
    if not later and (now[-1] if now else "winter") == season:
        return 0
    start = datetime.date(today.year, *first_days[season])
    return ((start if start > today else start.replace(year=today.year + 1)) - today).days


def counted(count, first, others):
    """As many places as the task requests: first its own."""
    places = [first] + [place for place in others if place != first]
    if not isinstance(count, int) or not 0 < count <= len(places):
        raise Failure("%s is not a number of cities from 1 to %d" % (count, len(places)))
    print("The task names only", places[0] + "; the others are large cities of a fixed list.")
    return places[:count]


def skill(name, load):
    """A function of the workspace's skills. load imports the skill's module."""
    try:
        module = load()
    except ModuleNotFoundError as error:
        if error.name not in ("skills", "skills." + name):
            raise
        raise Failure("the workspace has no skill %s" % name) from None
    for function in ("run", name):
        if callable(getattr(module, function, None)):
            return getattr(module, function)
    raise Failure("the skill %s has no function run" % name)


def applied(function, *numbers):
    """What a skill's function returns for numbers."""
    signature = inspect.signature(function)
    try:
        signature.bind(*numbers)
    except TypeError:
        raise Failure("the skill takes %s, not the numbers %s" % (signature, listed(numbers))) from None
    return function(*numbers)
