import os


def run(path, values=None, output=None):
    """Returns the form of a PDF file and its values; with values, fills them in and returns the path of the new file."""
    try:
        from pypdf import PdfReader, PdfWriter
        from pypdf.generic import BooleanObject, NameObject
    except ImportError:
        raise RuntimeError("the package pypdf is not installed: add it to the environment, or to the workspace") from None
    reader = PdfReader(path)
    fields = {name: f for name, f in (reader.get_fields() or {}).items() if f.get("/FT") in ("/Tx", "/Btn", "/Ch")}
    if not fields:
        raise ValueError(f"{path} has no form fields")
    if values is None:
        return {"form": {"type": "object", "title": os.path.basename(path),
                         "properties": {name: _property(f) for name, f in fields.items()}},
                "values": {name: v for name, f in fields.items() if (v := _value(f)) is not None}}
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise ValueError(f"{path} has no field {', '.join(unknown)}; its fields are {', '.join(fields)}")
    writer = PdfWriter()
    writer.clone_document_from_reader(reader)
    texts = {name: _text(fields[name], v) for name, v in values.items()}
    for page in writer.pages:
        if "/Annots" in page:
            writer.update_page_form_field_values(page, texts)
            for annotation in (a.get_object() for a in page["/Annots"]):
                if annotation.get("/FT") == "/Btn" and annotation.get("/T") in texts:
                    state = NameObject(texts[annotation["/T"]])
                    annotation[NameObject("/V")] = annotation[NameObject("/AS")] = state
    form = writer._root_object["/AcroForm"].get_object()
    form[NameObject("/NeedAppearances")] = BooleanObject(True)  # viewers draw the new values
    output = output or os.path.join("artifacts", os.path.basename(path))
    os.makedirs(os.path.dirname(output) or ".", exist_ok=True)
    with open(output, "wb") as f:
        writer.write(f)
    return {"file": output}


def _property(field):
    kind, title = field["/FT"], {"title": str(field["/TU"])} if "/TU" in field else {}
    if kind == "/Btn":
        return {"type": "boolean", **title}
    if kind == "/Ch" and "/Opt" in field:
        options = [o if isinstance(o, list) else [o, o] for o in field["/Opt"]]
        return {"type": "string", "oneOf": [{"const": str(value), "title": str(text)} for value, text in options], **title}
    return {"type": "string", **title}


def _value(field):
    value = field.get("/V")
    if value is None or field["/FT"] != "/Btn":
        return None if value is None else str(value)
    return value != "/Off"


def _text(field, value):
    if field["/FT"] != "/Btn":
        return "" if value is None else str(value)
    states = [s for s in field.get("/_States_", ["/Yes"]) if s != "/Off"]
    return (states or ["/Yes"])[0] if value else "/Off"
