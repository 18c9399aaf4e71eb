"""Converts a program's result to JSON, and decodes JSON."""

import base64
import itertools
import json
import math

MAX_DEPTH = 60  # levels of nesting
MAX_REPR = 2000  # characters of the repr of a value that has no JSON form
MAX_DIGITS = 4300  # of an integer: Python's limit, which a program may raise for itself, but not for later readers
TOO_LONG = 10**MAX_DIGITS


class TooLarge(Exception):
    pass


def load(data):
    """Returns the value of JSON. Unlike json, it refuses numbers beyond the range of floats, and NaN."""
    return json.loads(data, parse_float=finite, parse_constant=constant)


def load_document(data, levels):
    """Like load_kept, for a file that any program has written, in bytes. It is in UTF-8, and has no name twice."""
    return load_kept(data.decode(), levels, pairs=unique)


def unique(pairs):
    """Returns the object that consists of pairs."""
    members = {}
    for name, value in pairs:
        if name in members:
            raise ValueError("the name %.80r occurs twice" % name)
        members[name] = value
    return members


def load_kept(data, levels, digits=MAX_DIGITS, pairs=None):
    """Like load, for JSON that is to be kept: raises a ValueError if later readers could not decode it."""

    def integer(number):
        if len(number.lstrip("-")) > digits:
            raise ValueError("an integer has more than %d digits" % digits)
        return int(number)

    def fraction(number):
        if len(number) > MAX_DIGITS and sum(map(str.isdigit, number)) > MAX_DIGITS:
            raise ValueError("a number has more than %d digits" % MAX_DIGITS)
        return finite(number)

    value = json.loads(
        data, parse_int=integer, parse_float=fraction, parse_constant=constant, object_pairs_hook=pairs
    )
    check(value, levels)
    return value


def check(value, levels):
    """Raises a ValueError if decoded JSON has more levels of arrays and objects, or text with surrogates."""
    if isinstance(value, str):
        value.encode()
    if isinstance(value, (dict, list)):
        if levels == 0:
            raise ValueError("it is nested too deeply")
        for member in itertools.chain(value, value.values() if isinstance(value, dict) else ()):
            if isinstance(member, (str, dict, list)):
                check(member, levels - 1)


def constant(name):
    raise ValueError("JSON has no %s" % name)


def finite(number):
    value = float(number)
    if math.isinf(value):
        raise ValueError("the number %.40s is too large for a float" % number)
    return value


def dump(value, limit):
    """Returns value as JSON, in bytes. Raises TooLarge if it is longer than limit.

    Mappings, dataclasses and named tuples become objects with string keys. Lists, tuples and sets become arrays.
    Values with tolist(), such as NumPy's, become what it returns. Dates become text in ISO 8601. Decimals, fractions,
    paths, IP addresses and UUIDs also become text.
    NaN, infinities and missing values of pandas become null. The members of an Enum become their values. bytes become
    {"$base64": …}.

    A pandas DataFrame becomes an array of its rows; its index becomes a member of each row unless it consists of
    integers. A Series whose index does not consist of integers becomes an object with the index as keys.

    Everything else, and values that are nested too deeply, become {"$type": …, "$repr": …}.
    """
    value = Converter(limit).convert(value)
    data = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    if len(data) > limit:
        raise TooLarge
    return data


class Converter:
    def __init__(self, budget):
        self.budget = budget  # bytes left, counting at least one for each value

    def convert(self, value, depth=0):
        self.budget -= 1
        if self.budget < 0:
            raise TooLarge
        try:
            return self.convert_scalar(value, depth)
        except (TooLarge, MemoryError):
            raise
        except Exception:
            return opaque(value)

    def convert_scalar(self, value, depth):
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            self.budget -= len(value)
            return text(value)
        if isinstance(value, int):
            str(value)  # ValueError if it has more digits than the program permits
            return int(value) if -TOO_LONG < int(value) < TOO_LONG else opaque(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, (bytes, bytearray, memoryview)):
            return {"$base64": base64.b64encode(bytes(value)).decode()}
        if depth >= MAX_DEPTH or isinstance(value, type):
            return opaque(value)
        return self.convert_nested(value, depth + 1)

    def convert_nested(self, value, depth):
        kind = type(value)
        if isinstance(value, dict):
            return self.object(list(value.items()), depth)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return self.object(zip(kind._fields, value), depth)
        if isinstance(value, (list, tuple, range)) or kind.__name__ in VIEWS:
            return [self.convert(member, depth) for member in value]
        if isinstance(value, (set, frozenset)):
            return [self.convert(member, depth) for member in ordered(value)]
        if hasattr(kind, "__dataclass_fields__"):
            fields = kind.__dataclass_fields__
            return self.object([(name, getattr(value, name)) for name in fields], depth)
        if hasattr(kind, "__members__") and hasattr(value, "_value_"):  # Enum
            return self.convert(value._value_, depth)
        if kind.__name__ in MISSING and kind.__module__.startswith("pandas."):
            return None
        if hasattr(kind, "isoformat"):  # date, time, datetime, pandas.Timestamp
            return text(str(value.isoformat()))
        if kind.__module__.partition(".")[0] in TEXTUAL:
            return text(str(value))
        if has_index(value):
            return self.table(value, depth)
        if hasattr(kind, "tolist"):  # numpy's arrays and scalars
            return self.convert(value.tolist(), depth)
        if hasattr(kind, "to_dict"):  # pandas
            rows = {"orient": "records"} if getattr(value, "ndim", 1) == 2 else {}
            return self.convert(value.to_dict(**rows), depth)
        if hasattr(kind, "keys") and hasattr(kind, "__getitem__"):
            return self.object([(key, value[key]) for key in value.keys()], depth)
        return opaque(value)

    def table(self, value, depth):
        """Converts a pandas DataFrame or Series with an index: see has_index."""
        if value.ndim == 1 and value.index.nlevels == 1 and value.index.is_unique:
            return self.object(value.items(), depth)
        try:
            value = value.reset_index()
        except ValueError:  # a column has the name of the index
            pass
        return self.convert(value.to_dict(orient="records"), depth)

    def object(self, items, depth):
        return {key_of(key): self.convert(value, depth) for key, value in items}


VIEWS = ("deque", "dict_keys", "dict_values", "dict_items")
MISSING = ("NaTType", "NAType")
TEXTUAL = ("decimal", "fractions", "ipaddress", "pathlib", "uuid")


def has_index(value):
    """Returns whether value is a pandas DataFrame or Series whose index does not consist of integers."""
    kind = getattr(getattr(value, "index", None), "inferred_type", "integer")
    return kind not in ("integer", "empty") and hasattr(value, "reset_index")


def ordered(members):
    try:
        return sorted(members)
    except TypeError:
        return sorted(members, key=repr)


def key_of(key):
    if isinstance(key, str):
        return text(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return text(str(key)[:MAX_REPR])


def text(value):
    """Returns a string with its surrogates spelled out, because many libraries cannot decode them.

    Python has surrogates in the names of files that are not UTF-8.
    """
    value = str.__str__(value)
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def opaque(value):
    kind = type(value)
    try:
        representation = repr(value)[:MAX_REPR]
    except Exception as error:
        representation = "<repr: %s>" % type(error).__name__
    return {"$type": text("%s.%s" % (kind.__module__, kind.__qualname__)), "$repr": text(representation)}
