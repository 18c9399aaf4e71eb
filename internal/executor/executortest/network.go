package executortest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/runner"
)

// proxy is a fake proxy. After CONNECT it echoes data. Its response to any other request describes the request.
func proxy(_ context.Context, conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if r.Method == http.MethodConnect {
			if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
				_, _ = io.Copy(conn, in)
			}
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		text := fmt.Sprintf("%s %s %d", r.Method, r.URL, len(body))
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text); err != nil {
			return
		}
	}
}

const tunnel = `
import os, socket
def tunnel():
    s = socket.create_connection(('127.0.0.1', int(os.environ['HTTPS_PROXY'].rpartition(':')[2])))
    s.sendall(b'CONNECT pypi.org:443 HTTP/1.1\r\n\r\n')
    response = b''
    while not response.endswith(b'\r\n\r\n'): response += s.recv(1)
    return s
`

var networkPrograms = []struct {
	name, code string
	want       want
}{
	{
		"a request", "import urllib.request\nurllib.request.urlopen('http://example.org/a?b').read().decode()",
		want{result: `"GET http://example.org/a?b 0"`},
	},
	{
		"a large request", "import urllib.request\nurllib.request.urlopen('http://example.org/', b'x' * " +
			"3_000_000).read().decode()",
		want{result: `"POST http://example.org/ 3000000"`},
	},
	{
		"from a process of the program", `
import subprocess
code = "import urllib.request as u; print(u.urlopen('http://example.org/').read().decode())"
subprocess.run([__import__('sys').executable, '-c', code], capture_output=True, text=True).stdout.strip()`,
		want{result: `"GET http://example.org/ 0"`},
	},
	{"a tunnel, both ways at once", tunnel + `
import threading
s, sent, got = tunnel(), os.urandom(1 << 20) * 5, b''
def send():
    s.sendall(sent)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
while True:
    data = s.recv(1 << 16)
    if not data: break
    got += data
got == sent`, want{result: "true"}},
	{"more connections than the limit", `
import urllib.request
from client.mcp_client import parallel
def get(i): return urllib.request.urlopen('http://h%d.org/' % i).read()
len(set(parallel([lambda i=i: get(i) for i in range(120)], limit=40)))`, want{result: "120"}},
	{"idle connections", tunnel + `
kept = [tunnel() for _ in range(20)]
s = tunnel()
s.sendall(b'x')
s.recv(1).decode()`, want{result: `"x"`}},
	{"output and tools at the same time", tunnel + `
import threading
from client.mcp_client import call_mcp_tool
s, stop = tunnel(), []
def pump():
    while not stop:
        s.sendall(b'x' * 65536)
        left = 65536
        while left: left -= len(s.recv(left))
t = threading.Thread(target=pump)
t.start()
for i in range(20):
    print(call_mcp_tool('s', 't', {'i': i})['i'])
stop.append(1)
t.join()`, want{output: "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n"}},
	{
		"a program that ends while it sends",
		tunnel + "import threading\ns = tunnel()\nthreading.Thread(target=s.sendall, args=(b'x' * 50_000_000,), " +
			"daemon=True).start()\ns.recv(1)\nNone",
		want{},
	},
}

func testNetwork(t *testing.T, newDriver driverFunc) {
	b := open(t, newDriver(t), executor.Spec{})
	for _, c := range networkPrograms {
		t.Run(c.name, func(t *testing.T) {
			v := b.runProgram(t, executor.Program{Code: c.code}, executor.Hooks{Network: proxy, Call: echo})
			c.want.check(t, v)
			b.checkNext(t)
		})
	}
	t.Run("no network unless requested", func(t *testing.T) {
		v := b.runProgram(t, executor.Program{Code: tunnel + "tunnel(); os.environ['HTTPS_PROXY']"},
			executor.Hooks{Network: proxy})
		address := ""
		if err := json.Unmarshal(v.Result, &address); err != nil || address == "" {
			t.Fatalf("program = %s, want the proxy's address", format(v))
		}
		_, port, err := net.SplitHostPort(address[len("http://"):])
		if err != nil {
			t.Fatal(err)
		}
		v = b.run(t, "import os, socket\n"+
			"[[k for k in os.environ if 'proxy' in k.lower()], socket.socket().connect_ex(('127.0.0.1', "+port+
			"))]")
		want{result: "[[],111]"}.check(t, v)
	})
	t.Run("a server that closes at once", func(t *testing.T) {
		v := b.runProgram(t, executor.Program{Code: "import os, socket\n" +
			"s = socket.create_connection(('127.0.0.1', int(os.environ['http_proxy'].rpartition(':')[2])))\n" +
			"s.recv(9).decode()"},
			executor.Hooks{Network: func(_ context.Context, conn net.Conn) {
				_, _ = io.WriteString(conn, "bye")
				_ = conn.Close()
			}})
		want{result: `"bye"`}.check(t, v)
	})
	t.Run("both ends close at once", func(t *testing.T) {
		v := b.runProgram(t, executor.Program{Code: `
import os, socket
address = ('127.0.0.1', int(os.environ['http_proxy'].rpartition(':')[2]))
for i in range(30):
    all = [socket.create_connection(address) for _ in range(16)]
    for s in all: s.sendall(b'xy')
    for s in all: s.close()
'done'`}, executor.Hooks{Network: func(_ context.Context, conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}})
		want{result: `"done"`}.check(t, v)
	})
	t.Run("a port of the program's choice", func(t *testing.T) {
		if b.info.Tier == "" {
			t.Skipf("driver %s does not isolate", b.info.Driver)
		}
		bind := "import os, socket\ns = socket.socket()\ns.bind(('127.0.0.1', 4711))\n"
		v := b.runProgram(t, executor.Program{Code: bind + `
s.connect(('127.0.0.1', int(os.environ['http_proxy'].rpartition(':')[2])))
s.close()
None`}, executor.Hooks{Network: proxy})
		want{}.check(t, v)
		if v.Dirty {
			b.restart(t)
		}
		want{}.check(t, b.run(t, bind+"None")) // not in use for a minute
	})
	t.Run("connections end with the execution", func(t *testing.T) { testNetworkEnds(t, b) })
	t.Run("a server waits for a slow program", func(t *testing.T) { testFastServer(t, b) })
	t.Run("a program waits for a slow server", func(t *testing.T) { testFastProgram(t, b) })
}

// testNetworkEnds ends a program with open connections.
func testNetworkEnds(t *testing.T, b *box) {
	var ended atomic.Int64
	v := b.runProgram(t, executor.Program{
		Code:   tunnel + "a = [tunnel(), tunnel()]\nwhile True: pass",
		Limits: executor.Limits{Timeout: 2 * time.Second * Slow(t)},
	}, executor.Hooks{Network: func(ctx context.Context, conn net.Conn) {
		proxy(ctx, conn)
		if ctx.Err() == nil {
			t.Error("a connection ended before the execution, want it to end with the execution")
		}
		ended.Add(1)
	}})
	want{status: executor.Timeout, code: "timeout"}.check(t, v)
	if n := ended.Load(); n != 2 {
		t.Errorf("%d connections ended with the execution, want 2", n)
	}
	b.checkNext(t)
}

// testFastServer sends to a program that does not read at first. The sender must wait when the window is full.
func testFastServer(t *testing.T, b *box) {
	const total = 64 << 20
	var sent atomic.Int64
	full := make(chan struct{})
	v := b.runProgram(t, executor.Program{Code: `
import os, socket
from client.mcp_client import call_mcp_tool
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
s.connect(('127.0.0.1', int(os.environ['http_proxy'].rpartition(':')[2])))
sent, got = call_mcp_tool('s', 't')['sent'], 0
while True:
    data = s.recv(1 << 20)
    if not data: break
    got += len(data)
[sent < 64 << 19, got]`}, executor.Hooks{
		Network: func(_ context.Context, conn net.Conn) {
			defer conn.Close()
			block := make([]byte, 64<<10)
			for sent.Load() < total {
				n, err := conn.Write(block)
				if sent.Add(int64(n)) == runner.Window {
					close(full)
				}
				if err != nil {
					return
				}
			}
		},
		Call: func(ctx context.Context, _ executor.Call) (executor.CallResult, error) {
			select {
			case <-full:
			case <-ctx.Done():
				return executor.CallResult{}, ctx.Err()
			}
			total := waitStable(ctx, &sent)
			return executor.CallResult{Value: json.RawMessage(`{"sent": ` + strconv.FormatInt(total, 10) + `}`)}, nil
		},
	})
	want{result: "[true," + strconv.Itoa(total) + "]"}.check(t, v)
}

// waitStable waits until n has not changed for 50 ms, and returns it.
func waitStable(ctx context.Context, n *atomic.Int64) int64 {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		now := n.Load()
		if now == last || ctx.Err() != nil {
			return now
		}
		last = now
	}
}

// testFastProgram sends to a server that does not read until the program makes a call.
func testFastProgram(t *testing.T, b *box) {
	read := make(chan struct{})
	allow := sync.OnceFunc(func() { close(read) })
	var got atomic.Int64
	v := b.runProgram(t, executor.Program{Code: `
import os, select, socket
from client.mcp_client import call_mcp_tool
s = socket.create_connection(('127.0.0.1', int(os.environ['http_proxy'].rpartition(':')[2])))
s.setblocking(False)
sent, block = 0, b'x' * 65536
while sent < 64 << 20 and select.select([], [s], [], 0.3)[1]: sent += s.send(block)
stopped = sent < 64 << 20
call_mcp_tool('s', 't')
s.setblocking(True)
s.shutdown(socket.SHUT_WR)
s.recv(1)
[stopped, sent]`}, executor.Hooks{
		Network: func(ctx context.Context, conn net.Conn) {
			defer conn.Close()
			select {
			case <-read:
			case <-ctx.Done():
			}
			n, _ := io.Copy(io.Discard, conn)
			got.Store(n)
		},
		Call: func(context.Context, executor.Call) (executor.CallResult, error) {
			allow()
			return executor.CallResult{Value: json.RawMessage("1")}, nil
		},
	})
	var result []any
	if err := json.Unmarshal(v.Result, &result); err != nil || len(result) != 2 || result[0] != true {
		t.Fatalf("program = %s, want that its sends were blocked", format(v))
	}
	if result[1] != float64(got.Load()) {
		t.Errorf("%d bytes arrived, want the %v that the program sent", got.Load(), result[1])
	}
}
