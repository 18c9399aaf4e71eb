package runner

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// frame encodes a frame from the runner.
func frame(header, body string) string {
	data := header + "\n" + body
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(data)))) + data
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     Frame
		err      error
	}{
		{
			"hello", frame(`{"t":"hello","version":1,"python":"3.9.1"}`, ""),
			Frame{Type: "hello", Version: 1, Python: "3.9.1"},
			nil,
		},
		{"warm", frame(`{"t":"warm","version":1}`, "code"), Frame{Type: "warm", Version: 1, Body: []byte("code")}, nil},
		{
			"out", frame(`{"t":"out","stream":"stderr"}`, "\n\x00\n"),
			Frame{Type: "out", Stream: "stderr", Body: []byte("\n\x00\n")},
			nil,
		},
		{
			"call", frame(`{"t":"call","id":7,"server":"s","tool":"t","hash":"h"}`, "{}"),
			Frame{Type: "call", ID: 7, Server: "s", Tool: "t", Hash: "h", Body: []byte("{}")},
			nil,
		},
		{
			"called", frame(`{"t":"called","server":"s","tool":"t","ms":1.5,"ok":true}`, ""),
			Frame{Type: "called", Server: "s", Tool: "t", MS: 1.5, OK: true},
			nil,
		},
		{"called without a tool", frame(`{"t":"called","server":"s","ms":1}`, ""), Frame{}, ErrFrame},
		{"called with a body", frame(`{"t":"called","server":"s","tool":"t"}`, "x"), Frame{}, ErrFrame},
		{"called with negative time", frame(`{"t":"called","server":"s","tool":"t","ms":-1}`, ""), Frame{}, ErrFrame},
		{"called with NaN as time", frame(`{"t":"called","server":"s","tool":"t","ms":NaN}`, ""), Frame{}, ErrFrame},
		{
			"done, killed for lack of memory", frame(`{"t":"done","how":"exit","signal":"SIGKILL","oom":true}`,
				""),
			Frame{Type: "done", How: "exit", Signal: "SIGKILL", OOM: true},
			nil,
		},
		{
			"done", frame(`{"t":"done","how":"exit","signal":"SIGSEGV","cpu_ms":1.5,"peak_kb":2,"dropped":3}`, ""),
			Frame{Type: "done", How: "exit", Signal: "SIGSEGV", CPUMS: 1.5, PeakKB: 2, Dropped: 3},
			nil,
		},
		{
			"done with an error", frame(`{"t":"done","how":"end","error":{"code":"exception"},"parts":[1,2,3]}`, "abbccc4"),
			Frame{
				Type: "done", How: "end", Error: &Failure{Code: "exception"}, Parts: [3]int{1, 2, 3},
				Body: []byte("abbccc4"),
			},
			nil,
		},
		{"parts that are longer than the body", frame(`{"t":"done","how":"end","parts":[1,1,1]}`, "ab"), Frame{}, ErrFrame},
		{"a negative part", frame(`{"t":"done","how":"end","parts":[3,-1,0]}`, "ab"), Frame{}, ErrFrame},
		{
			"the largest", frame(`{"t":"out","stream":"stdout"}`, strings.Repeat("x", MaxFrame-30)),
			Frame{Type: "out", Stream: "stdout", Body: bytes.Repeat([]byte("x"), MaxFrame-30)},
			nil,
		},
		{"too large", frame(`{"t":"out","stream":"stdout"}`, strings.Repeat("x", MaxFrame-29)), Frame{}, ErrFrame},
		{"too large a length", "\xff\xff\xff\xff", Frame{}, ErrFrame},
		{
			"a large header", frame(`{"t":"hello","version":1,"python":"`+strings.Repeat("x", MaxHeader)+`"}`, ""),
			Frame{},
			ErrFrame,
		},
		{"no header", "\x00\x00\x00\x02{}", Frame{}, ErrFrame},
		{"an unknown type", frame(`{"t":"bye"}`, ""), Frame{}, ErrFrame},
		{"an unknown field", frame(`{"t":"ready","x":1}`, ""), Frame{}, ErrFrame},
		{"two headers", frame(`{"t":"ready"}{}`, ""), Frame{}, ErrFrame},
		{"an unknown stream", frame(`{"t":"out","stream":"log"}`, "x"), Frame{}, ErrFrame},
		{"facts that are not JSON", frame(`{"t":"checked"}`, "{"), Frame{}, ErrFrame},
		{"a call without an id", frame(`{"t":"call","server":"s","tool":"t"}`, "{}"), Frame{}, ErrFrame},
		{"an unknown end", frame(`{"t":"done","how":"well"}`, ""), Frame{}, ErrFrame},
		{"negative time", frame(`{"t":"done","how":"end","cpu_ms":-1}`, ""), Frame{}, ErrFrame},
		{"the end", "", Frame{}, io.EOF},
		{"half a length", "\x00\x00", Frame{}, io.ErrUnexpectedEOF},
		{"half a frame", "\x00\x00\x00\x09{\"t\":", Frame{}, io.ErrUnexpectedEOF},
		{"a length without a frame", "\x00\x00\x00\x09", Frame{}, io.ErrUnexpectedEOF},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want.Type != "" && c.want.Body == nil {
				c.want.Body = []byte{}
			}
			got, err := Read(strings.NewReader(c.in))
			if diff := cmp.Diff(c.want, got); diff != "" || !errors.Is(err, c.err) {
				t.Errorf("Read() = %v, want %v; frame (-want +got):\n%s", err, c.err, diff)
			}
		})
	}
}

func TestWriteSplitsLongMessages(t *testing.T) {
	for _, size := range []int{0, 1, MaxFrame - 100, MaxFrame, 3*MaxFrame + 5} {
		body := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		var out bytes.Buffer
		if err := Write(&out, Reply{Type: "reply", Size: size, ID: 1, OK: true}, body); err != nil {
			t.Fatalf("Write(%d bytes) = %v, want nil", size, err)
		}
		var got []byte
		for out.Len() > 0 {
			data := out.Next(int(binary.BigEndian.Uint32(out.Next(4))))
			if len(data) > MaxFrame {
				t.Errorf("Write(%d bytes) wrote a frame of %d bytes; the limit is %d", size, len(data), MaxFrame)
			}
			_, part, _ := bytes.Cut(data, []byte("\n"))
			got = append(got, part...)
		}
		if !bytes.Equal(got, body) {
			t.Errorf("Write(%d bytes) wrote %d bytes, want the same bytes in frames", size, len(got))
		}
	}
	if err := Write(io.Discard, Signal{Task: strings.Repeat("x", MaxHeader)}, nil); !errors.Is(err, ErrFrame) {
		t.Errorf("Write(a large header) = %v, want %v", err, ErrFrame)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", "\x00\x00\x00\x02{}", "\xff\xff\xff\xff",
		frame(`{"t":"hello","version":1}`, ""), frame(`{"t":"ready"}`, "") + frame(`{"t":"checked"}`, "{}"),
		frame(`{"t":"done","how":"end","error":{"code":"exception","line":1},"parts":[1,0,0]}`, "x[1]"),
		frame(`{"t":"call","id":1,"server":"s","tool":"t","hash":""}`, "{"),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.NewReader(data)
		for {
			before := in.Len()
			frame, err := Read(in)
			if err != nil {
				if !errors.Is(err, ErrFrame) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("Read() = %v; want ErrFrame or the end of the stream", err)
				}
				return
			}
			if len(frame.Body) > before-in.Len() || !frame.valid() {
				t.Errorf("Read() = %+v from %d bytes, want a valid frame with a shorter body", frame, before-in.Len())
			}
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte(`{"t":"out","stream":"stdout"}`))
	f.Add([]byte(`{"t":"done","how":"exit","code":-1,"cpu_ms":1e400}`))
	f.Add([]byte(`{"T":"ready"}`))
	f.Fuzz(func(t *testing.T, header []byte) {
		frame, err := decode(append(header, '\n', '1'))
		if (err == nil) == (frame.Type == "") || err != nil && !errors.Is(err, ErrFrame) {
			t.Errorf("decode(%q) = %+v, %v, want a frame with a type, or ErrFrame", header, frame, err)
		}
	})
}
