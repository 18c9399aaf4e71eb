package runner

import "testing"

// TestSplitter checks that nothing is lost if the function that reads raises, as a program's signal handler may do, and
// the limit of headers.
func TestSplitter(t *testing.T) {
	const check = `
import sys
parts = sys.stdin.read().split("\x1f")
for name, text in zip(("frames", "hidden"), parts):
    sys.modules[name] = module = type(sys)(name)
    exec(text, module.__dict__)
frames, hidden = sys.modules["frames"], sys.modules["hidden"]
splitter = frames.Splitter(hidden.Region(frames.CAPACITY))
stream = frames.pack({"t": "a"}, b"1") + frames.pack({"t": "b"}, bytes(range(256)))
def reader(data):
    def read(memory):
        memory[: len(data)] = data
        return len(data)
    return read
def failing(memory):
    raise TimeoutError
print(splitter.receive(reader(stream[:200])), bytes(splitter.next()[1]), splitter.next())
try:
    splitter.receive(failing)
except TimeoutError:
    pass
splitter.receive(reader(stream[200:]))
header, body, _ = splitter.next()
print(header, bytes(body) == bytes(range(256)), len(splitter))
for size in frames.MAX_HEADER - 1, frames.MAX_HEADER:
    splitter.receive(reader(frames.pack({"t": "x" * (size - 8)})))
    try:
        print(len(splitter.next()[0]["t"]))
    except frames.Broken as error:
        print(error)
`
	out := python(t, check, source("frames")+"\x1f"+source("hidden"))
	want := "200 b'1' None\n{'t': 'b'} True 0\n65527\nframe without a header\n"
	if out != want {
		t.Errorf("frames = %s, want %s", out, want)
	}
}
