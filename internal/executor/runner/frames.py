"""Frames: a big-endian u32 length, one line of JSON (the header), and raw bytes (the body).

A frame is at most LIMIT bytes long. Only the host sends longer messages: the first frame's header has the "size"
of the whole body, and frames of type "more" carry the rest.
"""

import json
import re

LIMIT = 1 << 20
CAPACITY = 4 + LIMIT + (1 << 16)  # bytes of a Splitter's memory
MAX_HEADER = 64 << 10
MAX_NAME = 512  # characters in the names of a tool call

_NEWLINE = re.compile(b"\n")


class Broken(Exception):
    """The peer violated the protocol."""


def head(header, size=0):
    """Returns the beginning of a frame, up to its body of the given size."""
    line = json.dumps(header, separators=(",", ":")).encode() + b"\n"
    length = len(line) + size
    if length > LIMIT:
        raise Broken("frame of %d bytes" % length)
    return length.to_bytes(4, "big") + line


def pack(header, body=b""):
    return head(header, len(body)) + body


class Splitter:
    """Splits a stream of bytes into frames, in a hidden.Region of CAPACITY bytes. len is the number of bytes in it."""

    def __init__(self, region):
        self._region, self._memory = region, region.view
        self._start = self._end = self._used = 0

    def receive(self, read):
        """Calls read with free memory, and returns what it returns: how many bytes it has put there.

        There is free memory unless next has frames to return. What next has returned is invalid afterwards.
        """
        rest = self._end - self._start
        if self._start:
            self._memory[:rest] = self._memory[self._start : self._end]
            self._start, self._end = 0, rest
        count = read(self._memory[rest:])  # in a program's process, it may raise what a signal handler raises
        self._end += count
        self._used = max(self._used, self._end)
        return count

    def next(self):
        """Returns (header, body, the frame as received), or None if more bytes are needed.

        Body and frame are views of the memory.
        """
        data = self._memory[self._start : self._end]
        if len(data) < 4:
            return None
        length = int.from_bytes(data[:4], "big")
        if length > LIMIT:
            raise Broken("frame of %d bytes" % length)
        if len(data) < 4 + length:
            return None
        self._start += 4 + length
        frame = data[: 4 + length]
        found = _NEWLINE.search(frame, 4, 4 + MAX_HEADER)
        if not found:
            raise Broken("frame without a header")
        try:
            header = json.loads(bytes(frame[4 : found.start()]))
        except (ValueError, RecursionError):
            raise Broken("header is not JSON") from None
        if not isinstance(header, dict) or not isinstance(header.get("t"), str):
            raise Broken("header without a type")
        return header, frame[found.end() :], frame

    def forget(self):
        """Forgets what was received, and frees the memory that held it."""
        self._region.free(self._used)
        self._start = self._end = self._used = 0

    def __len__(self):
        return self._end - self._start
