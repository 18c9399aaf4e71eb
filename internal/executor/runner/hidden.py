"""Memory that forked children do not have, for what programs send and receive.

A child has a copy of the runner's memory, and Python does not clear what it frees. So what the runner forwards stays
here, and does not become an object of Python, except the headers of frames: they have names and numbers, but no
arguments, results or output.
"""

import ctypes

KEEP = 64 << 10  # bytes that need not be freed after a program
PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS = 3, 0x22
MADV_DONTNEED, MADV_DONTFORK = 4, 10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Region:
    """A piece of such memory. It is never unmapped: a child that destroyed its copy of this object would unmap what it
    has at this address.
    """

    def __init__(self, size):
        self._address = _libc.mmap(None, size, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0)
        if self._address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap")
        self._advise(size, MADV_DONTFORK)
        self.view = memoryview((ctypes.c_ubyte * size).from_address(self._address)).cast("B")

    def free(self, used):
        """Frees the memory, whose first `used` bytes were written, unless these are at most KEEP."""
        if used > KEEP:
            self._advise(used, MADV_DONTNEED)

    def _advise(self, size, advice):
        if _libc.madvise(self._address, size, advice) != 0:
            raise OSError(ctypes.get_errno(), "madvise")


class Queue:
    """A queue of bytes. len is the number of bytes in it."""

    def __init__(self, size):
        self._region = Region(size)
        self._view = self._region.view
        self._start = self._end = self._used = 0

    def __len__(self):
        return self._end - self._start

    def put(self, data):
        """Appends data. Returns False if there is no space for it."""
        if len(self) + len(data) > len(self._view):
            return False
        if self._end + len(data) > len(self._view):
            self._view[: len(self)] = self._view[self._start : self._end]
            self._start, self._end = 0, len(self)
        self._view[self._end : self._end + len(data)] = data
        self._end += len(data)
        self._used = max(self._used, self._end)
        return True

    def send(self, socket):
        """Sends from the front of the queue as much as the socket takes at once. Returns how much that was."""
        count = socket.send(self._view[self._start : self._end])
        self._start += count
        if self._start == self._end:
            self._start = self._end = 0
        return count

    def clear(self):
        self._region.free(self._used)
        self._start = self._end = self._used = 0
