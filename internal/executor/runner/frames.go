package runner

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Limits of a frame, in bytes.
const (
	MaxFrame  = 1 << 20 // header and body
	MaxHeader = 64 << 10
)

// Limits of connections. network.py has the same limits.
const (
	MaxConns     = 32         // connections that a program may have open at once
	Window       = 256 << 10  // bytes that each side may send without an acknowledgement
	AckThreshold = Window / 4 // bytes after which a reader acknowledges
	MaxData      = 64 << 10   // bytes in a data frame
)

// ErrFrame is wrapped by errors about frames that violate the protocol.
var ErrFrame = errors.New("bad frame")

// Run starts a program. The body has four parts: the program's source, its inputs, the content of its state document,
// and its Details. Later programs can find old headers in their memory, but no bodies.
type Run struct {
	Type        string `json:"t"` // run
	Size        int    `json:"size"`
	Parts       [4]int `json:"parts"` // bytes of each part
	Task        string `json:"task"`
	Facts       bool   `json:"facts"`             // send checked, with the program's facts
	Wait        bool   `json:"wait"`              // wait for go before running
	Network     bool   `json:"network,omitempty"` // the program may open connections
	Catalogue   string `json:"catalogue,omitempty"`
	ResultBytes int    `json:"result_bytes"`
	Limits      Limits `json:"limits"`
}

// Details are what only the program's process needs.
type Details struct {
	Env     map[string]string `json:"env,omitempty"`
	State   *State            `json:"state,omitempty"` // nil if the program cannot use the variable state
	Session *Session          `json:"session,omitempty"`
}

// State is the state document of the variable state.
type State struct {
	File    string `json:"file"`    // path in the workspace
	Content bool   `json:"content"` // the body has the document as JSON; otherwise the program's process reads the file
	Save    bool   `json:"save"`    // write the keys that a successful program has changed
}

// Session is the session of the program's task.
type Session struct {
	Name string `json:"name"`
	File string `json:"file"` // path of its log in the workspace
}

// Limits of a program.
type Limits struct {
	Memory    int64 `json:"memory"` // bytes of address space in addition to the interpreter's
	CPU       int64 `json:"cpu"`    // seconds of processor time per process
	File      int64 `json:"file"`   // bytes of one file
	Files     int   `json:"files"`  // open descriptors
	Processes int   `json:"processes"`
	Output    int64 `json:"output"` // bytes of each stream that are forwarded
}

// Reply is the reply to a call. The body has three parts, each of which is a JSON value or empty: the result or the
// error's text, a list of what the tool returned in addition, and the error's structured content.
type Reply struct {
	Type  string `json:"t"` // reply
	Size  int    `json:"size"`
	Parts [3]int `json:"parts"` // bytes of each part
	ID    uint64 `json:"id"`
	OK    bool   `json:"ok"`
	Code  string `json:"code,omitempty"` // the error's code
}

// ConnMessage is a message to the runner about one of the program's connections: data carries bytes in the body, ack
// allows the runner to send Bytes more, eof means that the host sends no more, and reset means that it also reads no
// more. The program still gets the bytes that the host sent before a reset.
type ConnMessage struct {
	Type  string `json:"t"`
	ID    uint64 `json:"id"`
	Bytes int    `json:"n,omitempty"`
}

// Signal is a message without a body: go and cancel concern a task, next and resume the runner.
type Signal struct {
	Type string `json:"t"`
	Task string `json:"task"`
}

// Frame is a message from the runner: the fields of its type, and the body.
type Frame struct {
	Type string `json:"t"`

	// warm, hello
	Version int    `json:"version,omitempty"`
	Python  string `json:"python,omitempty"`
	// Interpreter is the full version of the interpreter, which compiled the runner that is in the body: see Compiled.
	// The body is empty if the host sent the runner in this compiled form.
	Interpreter string `json:"interpreter,omitempty"`

	// out
	Stream string `json:"stream,omitempty"` // stdout | stderr

	// call; open, data, ack, eof and reset
	ID uint64 `json:"id,omitempty"` // the call's or connection's id

	// ack
	Bytes int `json:"n,omitempty"`

	// call; also called, without Hash
	Server string `json:"server,omitempty"`
	Tool   string `json:"tool,omitempty"`
	Hash   string `json:"hash,omitempty"`

	// called
	MS float64 `json:"ms,omitempty"`
	OK bool    `json:"ok,omitempty"`

	// done
	How     string   `json:"how,omitempty"`    // end | exit | cancelled | channel
	Code    int      `json:"code,omitempty"`   // exit code, if How is exit
	Signal  string   `json:"signal,omitempty"` // the signal that killed the program, instead of Code
	Error   *Failure `json:"error,omitempty"`
	CPUMS   float64  `json:"cpu_ms,omitempty"`
	PeakKB  int64    `json:"peak_kb,omitempty"`
	Dropped int64    `json:"dropped,omitempty"` // bytes of output that were not forwarded
	OOM     bool     `json:"oom,omitempty"`     // the box's kernel killed a process for lack of memory
	// Parts are the bytes of the error's message, the error's cause, and the session's new checkpoint as JSON, with
	// which the body begins (untrusted).
	Parts      [3]int `json:"parts,omitzero"`
	StateSaved bool   `json:"state_saved,omitempty"` // the variable state was saved (untrusted)

	// left
	Left    string `json:"left,omitempty"`    // what the program left behind that cannot be removed
	Scratch bool   `json:"scratch,omitempty"` // the runner has yet to empty the scratch directories

	// Body is the compiled runner in warm and hello, the facts in checked, output in out, the arguments in
	// call, bytes in data, and Parts and the result in done.
	Body []byte `json:"-"`
}

// Failure says why a program did not succeed, as reported by its process (untrusted).
type Failure struct {
	Code string `json:"code"`
	Hint string `json:"hint"`
	Line int    `json:"line"`
}

// Split returns the parts of the body of a frame of type done.
func (f Frame) Split() (message, cause string, checkpoint, result []byte) {
	part := func(i int) (part []byte) {
		part, f.Body = f.Body[:f.Parts[i]], f.Body[f.Parts[i]:]
		return part
	}
	text := func(i int) string { return strings.ToValidUTF8(string(part(i)), "\uFFFD") }
	return text(0), text(1), part(2), f.Body
}

// Write sends a message in as many frames as it needs. If it may need more than one, header must have the
// body's size.
func Write(w io.Writer, header any, body []byte) error {
	line, err := json.Marshal(header)
	if err != nil {
		return fmt.Errorf("encode header: %w", err)
	}
	if len(line) > MaxHeader {
		return fmt.Errorf("header is %d bytes; the limit is %d: %w", len(line), MaxHeader, ErrFrame)
	}
	more := []byte(`{"t":"more"}`)
	for {
		n := min(len(body), MaxFrame-len(line)-1)
		frame := make([]byte, 4, 4+len(line)+1+n)
		binary.BigEndian.PutUint32(frame, uint32(len(line)+1+n))
		frame = append(append(append(frame, line...), '\n'), body[:n]...)
		if _, err := w.Write(frame); err != nil {
			return err
		}
		if body = body[n:]; len(body) == 0 {
			return nil
		}
		line = more
	}
}

// Read receives one frame from the runner. The error is io.EOF if the stream ended between two frames, and
// wraps ErrFrame if the frame violates the protocol.
func Read(r io.Reader) (Frame, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return Frame{}, err
	}
	length := binary.BigEndian.Uint32(prefix[:])
	if length > MaxFrame {
		return Frame{}, fmt.Errorf("frame is %d bytes; the limit is %d: %w", length, MaxFrame, ErrFrame)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(r, data); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return decode(data)
}

func decode(data []byte) (Frame, error) {
	end := bytes.IndexByte(data, '\n')
	if end < 0 || end > MaxHeader {
		return Frame{}, fmt.Errorf("no header of at most %d bytes: %w", MaxHeader, ErrFrame)
	}
	var f Frame
	header := json.NewDecoder(bytes.NewReader(data[:end]))
	header.DisallowUnknownFields()
	if err := header.Decode(&f); err != nil {
		//nolint:errorlint // io.EOF in a header must not look like the end of the frames
		return Frame{}, fmt.Errorf("decode header: %v: %w", err, ErrFrame)
	}
	if _, err := header.Token(); !errors.Is(err, io.EOF) {
		return Frame{}, fmt.Errorf("header has more than one value: %w", ErrFrame)
	}
	f.Body = data[end+1:]
	if !f.valid() {
		return Frame{}, fmt.Errorf("frame %.20q: %w", f.Type, ErrFrame)
	}
	return f, nil
}

// valid reports whether a frame has the fields that its type requires.
func (f Frame) valid() bool {
	switch f.Type {
	case "warm", "hello":
		return f.Version != 0
	case "ready", "preload", "left":
		return len(f.Body) == 0
	case "out":
		return f.Stream == "stdout" || f.Stream == "stderr"
	case "checked":
		return json.Valid(f.Body)
	case "call":
		return f.ID != 0
	case "called":
		return f.Server != "" && f.Tool != "" && f.MS >= 0 && len(f.Body) == 0
	case "done":
		ends := []string{"end", "exit", "cancelled", "channel"}
		return slices.Contains(ends, f.How) && f.CPUMS >= 0 && f.PeakKB >= 0 && f.Dropped >= 0 && f.hasParts()
	case "open", "eof", "reset":
		return f.ID != 0 && len(f.Body) == 0
	case "data":
		return f.ID != 0 && len(f.Body) > 0 && len(f.Body) <= MaxData
	case "ack":
		return f.ID != 0 && f.Bytes > 0 && f.Bytes <= Window && len(f.Body) == 0
	}
	return false
}

// hasParts reports whether the body is as long as its Parts.
func (f Frame) hasParts() bool {
	left := len(f.Body)
	for _, size := range f.Parts {
		if size < 0 || size > left {
			return false
		}
		left -= size
	}
	return true
}
