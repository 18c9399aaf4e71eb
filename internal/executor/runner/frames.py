"""Frames: a big-endian u32 length, one line of JSON (the header), and raw bytes (the body).

A frame is at most LIMIT bytes long. Only the host sends longer messages: the first frame's header has the "size"
of the whole body, and frames of type "more" carry the rest.
"""

import json

LIMIT = 1 << 20
MAX_NAME = 512  # characters in the names of a tool call


class Broken(Exception):
    """The peer violated the protocol."""


def pack(header, body=b""):
    line = json.dumps(header, separators=(",", ":")).encode() + b"\n"
    length = len(line) + len(body)
    if length > LIMIT:
        raise Broken("frame of %d bytes" % length)
    return b"".join((length.to_bytes(4, "big"), line, body))


class Splitter:
    """Splits a stream of bytes into frames."""

    def __init__(self):
        self._buffer = bytearray()

    def feed(self, data):
        self._buffer += data

    def next(self):
        """Returns (header, body, the frame as received), or None if more bytes are needed."""
        buffer = self._buffer
        if len(buffer) < 4:
            return None
        length = int.from_bytes(buffer[:4], "big")
        if length > LIMIT:
            raise Broken("frame of %d bytes" % length)
        if len(buffer) < 4 + length:
            return None
        frame = bytes(buffer[: 4 + length])
        del buffer[: 4 + length]
        end = frame.find(b"\n", 4)
        if end < 0:
            raise Broken("frame without a header")
        try:
            header = json.loads(frame[4:end])
        except (ValueError, RecursionError):
            raise Broken("header is not JSON") from None
        if not isinstance(header, dict) or not isinstance(header.get("t"), str):
            raise Broken("header without a type")
        return header, frame[end + 1 :], frame
