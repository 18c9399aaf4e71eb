"""Builds the wheel and the source distribution with the standard library alone, so that `pip install` needs no network.

PEP 517 and PEP 660 define the functions. The metadata is in pyproject.toml, of which this module reads only the few
lines that this package uses: Python has a TOML parser only since 3.11.
"""

import base64
import hashlib
import io
import os
import re
import tarfile
import zipfile

_ROOT = os.path.dirname(os.path.abspath(__file__))
_TIME = (1980, 1, 1, 0, 0, 0)  # constant, so that equal files give equal wheels


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, [(path, _read(path)) for path in _modules()])


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, [("code_execution_mcp.pth", (_ROOT + "\n").encode())])


def build_sdist(sdist_directory, config_settings=None):
    stem = "%s-%s" % (_name(), _project("version"))
    files = ["pyproject.toml", "build_backend.py", "README.md", "test_codefleet.py", *_modules()]
    with tarfile.open(os.path.join(sdist_directory, stem + ".tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path, content in [("PKG-INFO", _metadata()), *((path, _read(path)) for path in files)]:
            info = tarfile.TarInfo(stem + "/" + path)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stem + ".tar.gz"


def _wheel(directory, files):
    stem = "%s-%s" % (_name(), _project("version"))
    info = stem + ".dist-info/"
    command, target = _pyproject(r'^(\S+) = "([\w.]+:\w+)"$')
    files = files + [
        (info + "METADATA", _metadata()),
        (info + "WHEEL", b"Wheel-Version: 1.0\nGenerator: codefleet\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
        (info + "entry_points.txt", ("[console_scripts]\n%s = %s\n" % (command, target)).encode()),
    ]
    record = "".join("%s,sha256=%s,%d\n" % (path, _hash(content), len(content)) for path, content in files)
    files.append((info + "RECORD", (record + info + "RECORD,,\n").encode()))
    with zipfile.ZipFile(os.path.join(directory, stem + "-py3-none-any.whl"), "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files:
            entry = zipfile.ZipInfo(path, _TIME)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return stem + "-py3-none-any.whl"


def _metadata():
    lines = ["Metadata-Version: 2.3", "Name: " + _project("name"), "Version: " + _project("version"),
             "Summary: " + _project("description"), "Requires-Python: " + _project("requires-python"),
             "License: " + _project("license"), "Description-Content-Type: text/markdown", "", _read("README.md").decode()]
    return "\n".join(lines).encode()


def _modules():
    package = sorted(name for name in os.listdir(os.path.join(_ROOT, "code_execution_mcp")) if name.endswith(".py"))
    return ["codefleet.py", *("code_execution_mcp/" + name for name in package)]


def _name():
    return _project("name").replace("-", "_")


def _project(key):
    return _pyproject(r'^%s = "(.*)"$' % key)[0]


def _pyproject(pattern):
    return re.search(pattern, _read("pyproject.toml").decode(), re.MULTILINE).groups()


def _read(path):
    with open(os.path.join(_ROOT, path), "rb") as file:
        return file.read()


def _hash(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
