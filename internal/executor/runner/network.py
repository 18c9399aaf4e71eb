"""The connections of a program: a listener on the box's loopback, each connection to it the host's.

It runs in the runner's one thread and its poll. It believes the host, keeps at most WINDOW bytes of a
connection in each direction, and reads no more of the program than the host has room for.
"""

import select
import socket

from codefleet import frames

CONNECTIONS = 32  # at once; a program that makes more waits
WINDOW = 256 << 10
ASK = WINDOW // 4  # bytes delivered before the host hears of it
CHUNK = 64 << 10


class Network:
    def __init__(self, host, poll):
        self.host, self.poll = host, poll
        self.links = {}  # by id
        self.found = {}  # by descriptor
        self.last = 0
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(1024)  # those that wait for their turn
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.accepting = False
        self.watch()

    def watch(self):
        """Listens while there is room."""
        room = len(self.links) < CONNECTIONS
        if room and not self.accepting:
            self.poll.register(self.listener.fileno(), select.POLLIN)
        if not room and self.accepting:
            self.poll.unregister(self.listener.fileno())
        self.accepting = room

    def serve(self, descriptor, events):
        """Handles what the poll found. The connection may have ended since."""
        link = self.found.get(descriptor)
        if link is not None:
            link.serve()
        elif descriptor == self.listener.fileno():
            self.accept()

    def accept(self):
        try:
            connection, _ = self.listener.accept()
        except OSError:  # it has gone already
            return
        connection.setblocking(False)
        self.last += 1
        link = Link(self, self.last, connection)
        self.links[link.id] = self.found[connection.fileno()] = link
        self.send("open", link.id)
        link.watch()
        self.watch()

    def send(self, kind, number, body=b"", **more):
        self.host.forward(frames.pack(dict(more, t=kind, id=number), body))

    def take(self, header, body):
        """Handles a message of the host. It may be late: about a connection that has ended."""
        link = self.links.get(header["id"])
        if link is not None:
            link.take(header, body)

    def drop(self, link):
        del self.links[link.id], self.found[link.socket.fileno()]
        link.unwatch()
        link.socket.close()
        self.watch()

    def close(self):
        for link in list(self.links.values()):
            self.drop(link)
        if self.accepting:
            self.poll.unregister(self.listener.fileno())
        self.listener.close()


class Link:
    """One connection."""

    def __init__(self, network, number, connection):
        self.network, self.id, self.socket = network, number, connection
        self.room = WINDOW  # bytes that the host still takes
        self.read_all = False  # the program sends no more
        self.backlog = bytearray()  # for the program
        self.delivered = 0  # of it, and the host does not know
        self.last_words = False  # the host sends no more
        self.told = False  # the program knows
        self.over = False  # and takes no more: what is left is delivered
        self.events = 0

    def watch(self):
        """Waits for what there is to do, and for nothing else: a hangup would be told again and again."""
        events = select.POLLOUT if self.backlog else 0
        if self.room and not self.read_all and not self.over:
            events |= select.POLLIN
        if events and not self.events:
            self.network.poll.register(self.socket.fileno(), events)
        elif events:
            self.network.poll.modify(self.socket.fileno(), events)
        elif self.events:
            self.network.poll.unregister(self.socket.fileno())
        self.events = events

    def unwatch(self):
        if self.events:
            self.network.poll.unregister(self.socket.fileno())
            self.events = 0

    def serve(self):
        try:
            if self.events & select.POLLIN:
                self.read()
            if self.events & select.POLLOUT:
                self.flush()
        except BlockingIOError:
            pass
        except OSError:  # the program has closed its end
            self.fail()
            return
        self.settle()

    def read(self):
        try:
            data = self.socket.recv(min(CHUNK, self.room))
        except BlockingIOError:
            return
        if not data:
            self.read_all = True
            self.network.send("eof", self.id)
            return
        self.room -= len(data)
        self.network.send("data", self.id, data)

    def flush(self):
        while self.backlog:
            try:
                count = self.socket.send(self.backlog)
            except BlockingIOError:
                break
            del self.backlog[:count]
            self.delivered += count
        if self.delivered >= ASK and not self.last_words:
            self.network.send("ack", self.id, n=self.delivered)
            self.delivered = 0

    def take(self, header, body):
        kind = header["t"]
        if kind == "ack":
            self.room += header["n"]
        elif kind == "data":
            self.backlog += body
        elif kind == "eof":
            self.last_words = True
        else:
            self.last_words = self.over = True
        try:
            self.flush()
        except OSError:
            self.fail()
            return
        self.settle()

    def settle(self):
        """Ends what has come to its end."""
        if self.last_words and not self.backlog:
            if self.over or self.read_all:
                self.network.drop(self)
                return
            if not self.told:
                self.told = True
                try:
                    self.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    self.fail()
                    return
        self.watch()

    def fail(self):
        if not self.over:
            self.network.send("reset", self.id)
        self.network.drop(self)
