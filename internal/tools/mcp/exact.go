package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools"
)

// The SDK decodes structured content into Go values, which changes integers above 2^53. So exactContent replaces it
// with a string that contains its JSON, before the SDK reads the message, and structuredOf restores it.

// exactMark begins the strings that exactContent and exactSchemas write.
const exactMark = "\x00exact:"

// maxGrowth is the factor by which exactContent and exactSchemas may lengthen a message, because a JSON string escapes
// each quote and backslash.
const maxGrowth = 2

// exactContent returns a message with its structured content as a string. It returns other messages unchanged.
func exactContent(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"structuredContent"`)) {
		return message
	}
	var response, result map[string]json.RawMessage
	if json.Unmarshal(message, &response) != nil || json.Unmarshal(response["result"], &result) != nil {
		return message
	}
	content := result["structuredContent"]
	if content == nil || string(content) == "null" {
		return message
	}
	var err error
	if result["structuredContent"], err = tools.EncodeJSON(exactMark + string(content)); err != nil {
		return message
	}
	if response["result"], err = tools.EncodeJSON(result); err != nil {
		return message
	}
	out, err := tools.EncodeJSON(response)
	if err != nil {
		return message
	}
	return out
}

// exactSchemas returns a list of tools with the input schemas as strings, because a schema's Go value has lost the
// order of its properties, which is the order of the parameters. It returns other messages unchanged.
func exactSchemas(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"inputSchema"`)) {
		return message
	}
	var response, result map[string]json.RawMessage
	var list []map[string]json.RawMessage
	if json.Unmarshal(message, &response) != nil || json.Unmarshal(response["result"], &result) != nil ||
		json.Unmarshal(result["tools"], &list) != nil {
		return message
	}
	var err error
	for _, t := range list {
		if !bytes.HasPrefix(bytes.TrimSpace(t["inputSchema"]), []byte("{")) {
			continue
		}
		if t["inputSchema"], err = tools.EncodeJSON(exactMark + string(t["inputSchema"])); err != nil {
			return message
		}
	}
	for _, part := range []struct {
		in    map[string]json.RawMessage
		key   string
		value any
	}{{result, "tools", list}, {response, "result", result}} {
		if part.in[part.key], err = tools.EncodeJSON(part.value); err != nil {
			return message
		}
	}
	out, err := tools.EncodeJSON(response)
	if err != nil {
		return message
	}
	return out
}

// schemaOf returns an input schema as the server sent it.
func schemaOf(schema any) (json.RawMessage, error) {
	if s, ok := schema.(string); ok {
		if raw, marked := strings.CutPrefix(s, exactMark); marked && json.Valid([]byte(raw)) {
			return json.RawMessage(raw), nil
		}
	}
	return json.Marshal(schema)
}

// structuredOf returns the structured content of a result, or nil if it has none.
func structuredOf(res *sdk.CallToolResult) (json.RawMessage, error) {
	if res.StructuredContent == nil {
		return nil, nil
	}
	if s, ok := res.StructuredContent.(string); ok {
		if raw, marked := strings.CutPrefix(s, exactMark); marked && json.Valid([]byte(raw)) {
			return json.RawMessage(raw), nil
		}
	}
	return json.Marshal(res.StructuredContent)
}

// eventReader applies decodable to the messages of an event stream, each of which is the data of one event.
type eventReader struct {
	io.ReadCloser
	in     *bufio.Reader
	limit  int    // bytes of one event
	lines  []byte // the data lines of the current event
	data   []byte // their content
	unread []byte
	err    error // ends the stream after unread

	requests *requests // may be nil
}

func newEventReader(source io.ReadCloser, limit int) *eventReader {
	return &eventReader{ReadCloser: source, in: bufio.NewReaderSize(source, 64<<10), limit: limit}
}

func (r *eventReader) Read(p []byte) (int, error) {
	for len(r.unread) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		var line []byte
		if line, r.err = r.line(); r.err != nil && !errors.Is(r.err, io.EOF) {
			continue // the event is incomplete
		}
		content, isData := bytes.CutPrefix(line, []byte("data:"))
		if isData {
			r.lines = append(r.lines, line...)
			r.data = append(append(r.data, bytes.TrimPrefix(content, []byte(" "))...), '\n')
		}
		if r.err != nil || len(bytes.TrimSpace(line)) == 0 { // the event ends
			r.unread = r.event()
		}
		if !isData {
			r.unread = append(r.unread, line...)
		}
	}
	n := copy(p, r.unread)
	r.unread = r.unread[n:]
	return n, nil
}

// line reads one line with its line break, which the stream's last line may lack.
func (r *eventReader) line() (line []byte, err error) {
	for {
		part, err := r.in.ReadSlice('\n')
		line = append(line, part...)
		if len(line)+len(r.lines) > r.limit {
			return nil, errTooLarge
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// event returns the data lines of the event that has just ended, in a form that the SDK can decode.
func (r *eventReader) event() []byte {
	lines, data := r.lines, bytes.TrimSpace(r.data)
	r.lines, r.data = nil, nil
	if len(data) == 0 || data[0] != '{' {
		return lines
	}
	out, err := decodable(data, r.requests)
	if errors.Is(err, errRequests) {
		r.err = err
		return nil
	}
	if out != nil && !bytes.Equal(out, data) {
		return append([]byte("data: "), out...) // out ends with a newline
	}
	return lines
}

// exactBody applies decodable to a response that is one message.
type exactBody struct {
	io.ReadCloser
	message io.Reader
}

func (b *exactBody) Read(p []byte) (int, error) {
	if b.message == nil {
		data, err := io.ReadAll(b.ReadCloser)
		if err != nil {
			return 0, err
		}
		if len(data) > 0 && data[0] == '{' {
			if out, _ := decodable(data, nil); out != nil { // the response to a request of ours: one at a time
				data = out
			}
		}
		b.message = bytes.NewReader(data)
	}
	return b.message.Read(p)
}
