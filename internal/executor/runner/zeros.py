"""Frees pages of zeros, so that a fork does not copy them.

gVisor gives a process memory in pieces of up to 2 MiB, and copies a whole piece for a forked process that writes to a
part of it. A third of an interpreter's memory has never been written to: below its stack, at the end of its arenas, and
in its tables. Freed pages are zeros again when they are read.
"""

import ctypes
import os

UNIT = 16 << 10  # what is compared at once
LEAST = 64 << 10  # bytes that are freed at once
MARGIN = 64 << 10  # bytes at an end of the zeros that stay: where an allocator goes on, or the stack grows
LARGEST = 16 << 20  # bytes of a mapping; to compare memory that was never used costs memory
STACK = 2 << 20  # bytes of the stack
MADV_DONTNEED = 4


def drop():
    """Frees the pages of zeros of this process. Returns how many bytes it has freed.

    Nothing may write to a page between the comparison and its release. So it does nothing if there are other threads.
    This thread itself allocates only a few small objects in between, which come from an allocator's free blocks or
    from within MARGIN. It also does nothing if UNIT is not a multiple of the page size.
    """
    if len(os.listdir("/proc/self/task")) > 1 or UNIT % os.sysconf("SC_PAGE_SIZE"):
        return 0
    libc = ctypes.CDLL(None)
    compare, advise, pointer = libc.memcmp, libc.madvise, ctypes.c_void_p
    compare.argtypes = [pointer, pointer, ctypes.c_size_t]
    advise.argtypes = [pointer, ctypes.c_size_t, ctypes.c_int]
    nothing = ctypes.create_string_buffer(UNIT)
    zeros = ctypes.addressof(nothing)
    freed = 0
    for start, end, stack in anonymous():
        for first, last in ranges(start, end, stack, lambda at: compare(at, zeros, UNIT) == 0):
            size = last - first
            # The first unit is zero, and each byte equals the one a unit before it.
            if compare(first, zeros, UNIT) == 0 and compare(first, first + UNIT, size - UNIT) == 0:
                if advise(first, size, MADV_DONTNEED) == 0:
                    freed += size
    return freed


def anonymous():
    """Returns the mappings without a file that only this process uses: start, end, and whether it is the stack."""
    found = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split()
            name = fields[5] if len(fields) > 5 else ""
            if fields[1].startswith("rw") and fields[1][3] == "p" and name in ("", "[heap]", "[stack]"):
                start, end = [int(address, 16) for address in fields[0].split("-")]
                if name == "[stack]":
                    start = max(start, end - STACK)
                if end - start <= LARGEST:
                    found.append((start, end, name == "[stack]"))
    return found


def ranges(start, end, stack, is_zero):
    """Returns the ranges of zeros in a mapping that can be freed, as pairs of addresses.

    Allocators go on at the beginning of unused memory, so MARGIN there stays. A stack grows down: only what is below
    its lowest use is free, and the MARGIN next to that use stays.
    """
    found, first = [], None
    for at in range(start, end + 1, UNIT):
        if at + UNIT <= end and is_zero(at):
            first = at if first is None else first
        elif first is not None:
            low, high = (first, at - MARGIN) if stack else (first + MARGIN, at)
            if high - low >= LEAST:
                found.append((low, high))
            first = None
        if stack and first is None:
            break
    return found
