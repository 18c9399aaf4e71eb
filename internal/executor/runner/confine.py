"""Keeps programs from leaving anything behind in their box.

A box runs many programs of a tenant, one after the other. Whatever a program creates must end with it, or be
removed before the next program. Processes, threads and descriptors, and what only these hold, end with it.
Files are removed by the host and by child.empty. Kernel objects that outlive their process cannot be created,
because a seccomp filter denies the system calls.

Some things outlive their process, and a box in which one of them is found is discarded. Under every driver:

  - times of devices and, without a user of their own for programs, everything in /dev; times finds them

Under gVisor:

  - sockets that are bound to a name in the workspace: they exist only inside the box, so the host cannot see or
    remove them; special_file finds them
  - sockets that exist only in each other's queues: gVisor never frees them; unix_sockets counts them
  - ports of connections that the program has opened to itself: they stay in use for a minute; opened_connections counts
    them
"""

import ctypes
import errno
import os
import socket
import stat
import time

SEARCH = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
MAX_DEPTH = 500  # of directories that are searched for special files
SEARCH_S = 2  # for the search

# System call numbers on x86_64 and aarch64. None means that the machine does not have the call.
ABSENT = {  # fail as in a kernel without them
    "io_setup": (206, 0),  # asynchronous writes outlive a process
    "io_uring_setup": (425, 425),
    "shmget": (29, 194),  # System V and POSIX objects outlive a process, and are not files of the workspace
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),  # keyrings belong to a user, not to a process
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "clone3": (435, 435),  # a filter cannot check its flags; the C library then calls clone
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
}
UNSUPPORTED = {  # fail as on a file system without extended attributes, because a workspace does not store them
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "file_setattr": (469, 469),
}
FORBIDDEN = {  # fail for lack of permission
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),  # in its own namespace, a program would have the privileges of root
    "setns": (308, 268),
}
CLONE = (56, 220)
NAMESPACES = 0x7E020000  # flags of clone that create a namespace
MKNOD, MKNODAT = (133, None), (259, 33)

MACHINES = ("x86_64", "aarch64")
AUDIT_ARCH = (0xC000003E, 0xC00000B7)
X32 = 0x40000000  # bit in the system call numbers of x86_64's x32 ABI

# struct seccomp_data
NUMBER, ARCH, ARGUMENT = 0, 4, 16

LOAD, EQUAL, AT_LEAST, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000


def filter_program(machine):
    """Returns the instructions of a seccomp filter: tuples of code, jump if true, jump if false, and value.

    The system calls in ABSENT, UNSUPPORTED and FORBIDDEN fail, as do all calls of another ABI. clone cannot
    create namespaces, and mknod can create only regular files.
    """
    which = MACHINES.index(machine)
    allow, absent = [(RETURN, 0, 0, ALLOW)], [(RETURN, 0, 0, FAIL | errno.ENOSYS)]
    unsupported, forbidden = [(RETURN, 0, 0, FAIL | errno.ENOTSUP)], [(RETURN, 0, 0, FAIL | errno.EPERM)]
    rules = {CLONE[which]: [(LOAD, 0, 0, ARGUMENT)] + when(ANY_BIT, NAMESPACES, forbidden) + allow}
    for calls, failure in ((ABSENT, absent), (UNSUPPORTED, unsupported), (FORBIDDEN, forbidden)):
        rules.update((numbers[which], failure) for numbers in calls.values())
    for numbers, mode in ((MKNOD, 1), (MKNODAT, 2)):
        regular = [(LOAD, 0, 0, ARGUMENT + 8 * mode), (AND, 0, 0, 0o170000)]
        for kind in (0, stat.S_IFREG):
            regular += when(EQUAL, kind, allow)
        if numbers[which] is not None:
            rules[numbers[which]] = regular + forbidden
    program = [(LOAD, 0, 0, ARCH), (EQUAL, 1, 0, AUDIT_ARCH[which])] + absent + [(LOAD, 0, 0, NUMBER)]
    return program + when(AT_LEAST, X32, absent) + search(sorted(rules.items()), allow)


def search(rules, otherwise):
    """Returns instructions that find the system call's rule, by binary search because every call executes the filter.

    rules are pairs of a system call number and its instructions, sorted by number.
    """
    if len(rules) == 1:
        number, instructions = rules[0]
        return when(EQUAL, number, instructions) + otherwise
    middle = len(rules) // 2
    below, rest = search(rules[:middle], otherwise), search(rules[middle:], otherwise)
    return [(AT_LEAST, len(below), 0, rules[middle][0])] + below + rest


def when(code, value, instructions):
    """Returns the instructions, to be executed only if the condition holds."""
    return [(code, 0, len(instructions), value)] + instructions


def install_filter(libc):
    """Installs the filter in this process and in all processes that it starts. It cannot be removed."""
    program = filter_program(os.uname().machine)
    packed = (ctypes.c_uint64 * len(program))(
        *[code | true << 16 | false << 24 | value << 32 for code, true, false, value in program]
    )
    header = (ctypes.c_uint64 * 2)(len(program), ctypes.addressof(packed))
    if libc.prctl(22, 2, header, 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "install the seccomp filter")


def devices(owner):
    """Returns the paths below /dev that programs can change, except below mounts, which are emptied.

    These are the devices that they can open for writing, whose times they can set. The owner of /dev can change
    everything there.
    """
    found = ["/dev"] if owner else []
    for directory, inner, names in os.walk("/dev"):
        inner[:] = [name for name in inner if not os.path.ismount(os.path.join(directory, name))]
        for path in [os.path.join(directory, name) for name in (inner if owner else []) + names]:
            try:
                mode = os.lstat(path).st_mode
            except OSError:  # it has just been removed
                continue
            if owner or stat.S_ISCHR(mode) and mode & stat.S_IWOTH:
                found.append(path)
    return found


def times(paths):
    """Returns when the inodes at paths have changed, by path. To set another time is such a change."""
    return {path: _changed(path) for path in paths}


def _changed(path):
    try:
        return os.lstat(path).st_ctime_ns
    except OSError:
        return None


def socket_number(sock):
    """Returns the number of a socket. gVisor numbers sockets in order of creation."""
    return os.fstat(sock.fileno()).st_ino


def next_socket_number():
    """Returns the number of a new socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return socket_number(probe)


def unix_sockets():
    """Returns the number of Unix sockets in the box."""
    with open("/proc/net/unix", "rb") as sockets:
        return sum(1 for line in sockets) - 1  # without the heading


def opened_connections():
    """Returns how many TCP connections programs have begun to open, which all lead to the box itself.

    It counts where connections are opened, not where a listener accepts them: a socket can also connect to itself.
    """
    with open("/proc/net/snmp", "rb") as counters:
        names, values = [line.split() for line in counters if line.startswith(b"Tcp:")]
    return int(values[names.index(b"ActiveOpens")])


def special_file(directory, uid):
    """Searches below a directory for anything but files, directories and symbolic links.

    Returns what it found, or an empty string. It searches with the permissions of uid, and reports a directory
    that it cannot search, and directories that it cannot search within SEARCH_S.
    """
    euid = os.geteuid()
    os.seteuid(uid)
    try:
        return _special_file(os.open(directory, SEARCH), 0, time.monotonic() + SEARCH_S)
    except OSError as error:
        return "a directory that cannot be searched: " + error.strerror
    finally:
        os.seteuid(euid)


def _special_file(descriptor, depth, deadline):
    """Searches an open directory and closes it."""
    below = []
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if time.monotonic() > deadline:
                    return "more directories and files than can be searched in time"
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    return "a socket, pipe or device"
        if below and depth == MAX_DEPTH:
            return "directories nested too deeply"
        for name in below:
            try:
                inner = os.open(name, SEARCH, dir_fd=descriptor)
            except FileNotFoundError:  # a process removed it while it was being killed
                continue
            found = _special_file(inner, depth + 1, deadline)
            if found:
                return found
    finally:
        os.close(descriptor)
    return ""
