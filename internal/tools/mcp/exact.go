package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/text"
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
			r.data = append(append(r.data, bytes.TrimSpace(content)...), '\n') // the SDK trims each line, too
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

// ignored replaces the data of a message that the client does not need. Over SSE, an event without data would end the
// connection.
const ignored = `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":""}}` + "\n"

// event returns the data lines of the event that has just ended, in a form that the SDK can decode.
func (r *eventReader) event() []byte {
	lines, data := r.lines, bytes.TrimSpace(r.data)
	r.lines, r.data = nil, nil
	if len(data) == 0 || data[0] != '{' {
		return lines
	}
	out, err := decodable(data, r.requests)
	switch {
	case errors.Is(err, errTooManyRequests):
		r.err = err
		return nil
	case out == nil && err == nil:
		return []byte(ignored)
	case out == nil && (errors.Is(err, errUnreadable) || decodes(data)):
		return unreadable(err)
	case out == nil: // the SDK ends the connection, or ignores an event that is not of the type message
		return lines
	case bytes.Equal(out, data):
		return lines
	}
	return append(append([]byte("data: "), bytes.TrimSuffix(out, []byte("\n"))...), '\n')
}

// decodes reports whether the SDK decodes data, for example because it ignores what follows the message.
func decodes(data []byte) bool {
	_, err := jsonrpc.DecodeMessage(data)
	return err == nil
}

// unreadable returns a line for which the SDK ends the connection, with the line as the reason. The SDK would resume a
// stream that has only ended.
func unreadable(err error) []byte {
	reason := strings.ReplaceAll(fmt.Sprintf("%v (%v)", errUnreadable, err), ":", ";") // a colon would make it a field
	return []byte(text.OneLine(text.Truncate(reason, maxMessage)) + "\n")
}

// exactBody applies decodable to the body of a response that is not a stream. A body that is not one message is an
// error. If the response refuses the request, such a body is passed on: the SDK returns an error, whatever the body is.
type exactBody struct {
	io.ReadCloser
	refusal bool
	message io.Reader
	err     error
}

func (b *exactBody) Read(p []byte) (int, error) {
	if b.message == nil && b.err == nil {
		data, err := io.ReadAll(b.ReadCloser)
		if err == nil {
			data, err = b.decodable(data)
		}
		b.message, b.err = bytes.NewReader(data), err
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.message.Read(p)
}

func (b *exactBody) decodable(data []byte) ([]byte, error) {
	// Nothing is counted: this body is the response to one request of ours.
	out, err := decodable(bytes.TrimSpace(data), nil)
	switch {
	case out != nil:
		return out, nil
	case b.refusal:
		return data, nil
	case err == nil:
		return nil, fmt.Errorf("%w: it is a notification, want the response to a request", errUnreadable)
	}
	return nil, fmt.Errorf("%w: %w", errUnreadable, err)
}
