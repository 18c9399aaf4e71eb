"""A program's connections: accepts them on the box's loopback interface and forwards them to the host.

This code runs in the runner's only thread and uses its poll. It trusts the host, buffers at most WINDOW bytes
per connection and direction, and reads no more from the program than the host can buffer.
"""

import select
import socket

from codefleet import hidden

MAX_CONNS = 32  # at once; more connections wait in the listener's queue
WINDOW = 256 << 10
ACK_THRESHOLD = WINDOW // 4  # bytes delivered to the program before they are acknowledged
CHUNK = 64 << 10
LOWEST_PORT = 16000  # gVisor chooses no port below it for a connection


class Network:
    backlogs = []  # unused queues, kept for later programs

    def __init__(self, host, poll):
        self.host, self.poll = host, poll
        self.by_id = {}
        self.by_descriptor = {}
        self.last_id = 0
        self.ordinary = 0  # connections from ports that the kernel has chosen
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(1024)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.accepting = False
        self.update_listener()

    def update_listener(self):
        """Accepts connections only below the limit."""
        below = len(self.by_id) < MAX_CONNS
        if below and not self.accepting:
            self.poll.register(self.listener.fileno(), select.POLLIN)
        if not below and self.accepting:
            self.poll.unregister(self.listener.fileno())
        self.accepting = below

    def serve(self, descriptor, events):
        """Handles an event that poll reported. The connection may have ended since then."""
        connection = self.by_descriptor.get(descriptor)
        if connection is not None:
            connection.serve()
        elif descriptor == self.listener.fileno():
            self.accept()

    def accept(self):
        try:
            accepted, (_, port) = self.listener.accept()
        except OSError:  # the program has already closed it
            return
        accepted.setblocking(False)
        self.last_id += 1
        self.ordinary += port >= LOWEST_PORT
        connection = Connection(self, self.last_id, accepted)
        self.by_id[connection.id] = self.by_descriptor[accepted.fileno()] = connection
        self.send("open", connection.id)
        connection.update_poll()
        self.update_listener()

    def send(self, kind, number, body=b"", **more):
        self.host.send(dict(more, t=kind, id=number), body)

    def handle(self, header, body):
        """Handles a message from the host. It may be about a connection that has ended."""
        connection = self.by_id.get(header["id"])
        if connection is not None:
            connection.handle(header, body)

    def remove(self, connection):
        del self.by_id[connection.id], self.by_descriptor[connection.socket.fileno()]
        connection.leave_poll()
        connection.socket.close()
        connection.backlog.clear()
        self.backlogs.append(connection.backlog)
        self.update_listener()

    def close(self):
        for connection in list(self.by_id.values()):
            self.remove(connection)
        if self.accepting:
            self.poll.unregister(self.listener.fileno())
        self.listener.close()


class Connection:
    """One connection between the program and the host."""

    def __init__(self, network, number, accepted):
        self.network, self.id, self.socket = network, number, accepted
        self.window = WINDOW  # bytes that may still be sent to the host
        self.program_eof = False  # the program sends no more
        self.backlog = network.backlogs.pop() if network.backlogs else hidden.Queue(WINDOW)  # for the program
        self.unacked = 0  # bytes delivered to the program and not yet acknowledged
        self.host_eof = False  # the host sends no more
        self.shut_down = False  # the socket to the program is shut down for writing
        self.host_reset = False  # the host also reads no more; the backlog is still delivered
        self.events = 0

    def update_poll(self):
        """Polls only for what can be handled now: an unhandled hangup would be reported forever."""
        events = select.POLLOUT if self.backlog else 0
        if self.window and not self.program_eof and not self.host_reset:
            events |= select.POLLIN
        if events and not self.events:
            self.network.poll.register(self.socket.fileno(), events)
        elif events:
            self.network.poll.modify(self.socket.fileno(), events)
        elif self.events:
            self.network.poll.unregister(self.socket.fileno())
        self.events = events

    def leave_poll(self):
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
        self.update()

    def read(self):
        try:
            count = self.socket.recv_into(self.network.host.chunk[: min(CHUNK, self.window)])
        except BlockingIOError:
            return
        if not count:
            self.program_eof = True
            self.network.send("eof", self.id)
            return
        self.window -= count
        self.network.send("data", self.id, self.network.host.chunk[:count])

    def flush(self):
        while self.backlog:
            try:
                self.unacked += self.backlog.send(self.socket)
            except BlockingIOError:
                break
        if self.unacked >= ACK_THRESHOLD and not self.host_eof:
            self.network.send("ack", self.id, n=self.unacked)
            self.unacked = 0

    def handle(self, header, body):
        kind = header["t"]
        if kind == "ack":
            self.window += header["n"]
        elif kind == "data":
            if not self.backlog.put(body):  # the host exceeds the window
                self.fail()
                return
        elif kind == "eof":
            self.host_eof = True
        else:
            self.host_eof = self.host_reset = True
        try:
            self.flush()
        except OSError:
            self.fail()
            return
        self.update()

    def update(self):
        """Ends the directions that are complete, and polls for the others."""
        if self.host_eof and not self.backlog:
            if self.host_reset or self.program_eof:
                self.network.remove(self)
                return
            if not self.shut_down:
                self.shut_down = True
                try:
                    self.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    self.fail()
                    return
        self.update_poll()

    def fail(self):
        """Ends the connection after an error of its socket."""
        if not self.host_reset:
            self.network.send("reset", self.id)
        self.network.remove(self)
