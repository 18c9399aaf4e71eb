package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// The SDK decodes structured content and schemas into Go values, which changes integers above 2^53, and loses the order
// of a schema's properties, which is the order of the parameters. So exactResult replaces them with strings that
// contain their JSON, before the SDK reads the message, and rawJSON restores them.

// exactMark begins the strings that contain JSON. malformedMark begins those that say why a tool cannot be decoded.
const (
	exactMark     = "\x00exact:"
	malformedMark = "\x00malformed:"
)

// maxGrowth is the factor by which exactResult may lengthen a message, because a JSON string escapes each quote and
// backslash.
const maxGrowth = 2

// exactResult returns a response with its structured content, and the schemas of the tools that it lists, as strings. A
// tool that the SDK cannot decode becomes one that only says so. Of a list that is too long, exactResult keeps only so
// much that definitions rejects it. exactResult returns other messages unchanged.
func exactResult(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"structuredContent"`)) && !bytes.Contains(message, []byte(`"tools"`)) &&
		!bytes.Contains(message, []byte(`\u`)) { // a name may be escaped
		return message
	}
	var response, result map[string]json.RawMessage
	if json.Unmarshal(message, &response) != nil || json.Unmarshal(response["result"], &result) != nil {
		return message
	}
	changed := exactMember(result, "structuredContent")
	if list := firstTools(result["tools"]); list != nil {
		for i, t := range list {
			list[i] = exactTool(t)
		}
		result["tools"] = encode(list)
		changed = true
	}
	if !changed {
		return message
	}
	response["result"] = encode(result)
	return encode(response)
}

// exactMember replaces a member of an object with a string, and reports whether the object has the member.
func exactMember(object map[string]json.RawMessage, name string) bool {
	value := object[name]
	if value == nil || string(value) == "null" {
		return false
	}
	object[name] = encode(exactMark + string(value))
	return true
}

// firstTools returns the tools in a list: at most one more than definitions accepts. It returns nil if data, which is
// empty or valid JSON, is not a list.
func firstTools(data json.RawMessage) []json.RawMessage {
	in := json.NewDecoder(bytes.NewReader(data))
	if begin, _ := in.Token(); begin != json.Delim('[') {
		return nil
	}
	list := []json.RawMessage{}
	for in.More() && len(list) <= maxListed {
		var t json.RawMessage
		_ = in.Decode(&t) // never fails for valid JSON
		list = append(list, t)
	}
	return list
}

// encode encodes a value that consists of strings and valid JSON, for which encoding never fails.
func encode(v any) json.RawMessage {
	data, _ := tools.EncodeJSON(v)
	return data
}

// exactTool returns a tool with its schemas as strings.
func exactTool(data json.RawMessage) json.RawMessage {
	var t map[string]json.RawMessage
	if json.Unmarshal(data, &t) != nil || t == nil {
		return encode(map[string]string{"inputSchema": malformedMark + "it is not a JSON object"})
	}
	for _, name := range []string{"inputSchema", "outputSchema"} {
		exactMember(t, name) // a string, too: it could begin with malformedMark
	}
	exact := encode(t)
	if json.Unmarshal(exact, new(sdk.Tool)) == nil {
		return exact
	}
	var name string
	_ = json.Unmarshal(t["name"], &name) // if it is no string, the tool has no name
	problem := "a part of its definition has the wrong type"
	for _, part := range slices.Sorted(maps.Keys(t)) {
		if json.Unmarshal(encode(map[string]json.RawMessage{part: t[part]}), new(sdk.Tool)) != nil {
			problem = fmt.Sprintf("a value in its %q has the wrong type", part)
			break
		}
	}
	return encode(map[string]string{"name": name, "inputSchema": malformedMark + problem})
}

// rawJSON returns a value that the SDK has decoded as the server sent it.
func rawJSON(v any) (json.RawMessage, error) {
	if s, ok := v.(string); ok {
		if raw, marked := strings.CutPrefix(s, exactMark); marked && json.Valid([]byte(raw)) {
			return json.RawMessage(raw), nil
		}
	}
	return json.Marshal(v)
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
	begun  bool  // the first line, which may begin with a byte order mark, was read

	requests *requests // may be nil
}

func newEventReader(source io.ReadCloser, limit int) *eventReader {
	in := bufio.NewReaderSize(&lineEnds{Reader: source}, 64<<10)
	return &eventReader{ReadCloser: source, in: in, limit: limit}
}

// lineEnds replaces each CR, and each CR LF, with LF: the lines of an event stream may end with any of them, but the
// SDK does not end a line at a CR.
type lineEnds struct {
	io.Reader
	afterCR bool
}

func (r *lineEnds) Read(p []byte) (int, error) {
	for {
		n, err := r.Reader.Read(p)
		out := p[:0]
		for _, b := range p[:n] {
			if skip := b == '\n' && r.afterCR; !skip {
				out = append(out, b)
			}
			if r.afterCR = b == '\r'; r.afterCR {
				out[len(out)-1] = '\n'
			}
		}
		if len(out) > 0 || err != nil || len(p) == 0 {
			return len(out), err
		}
	}
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
		if !r.begun {
			line, r.begun = bytes.TrimPrefix(line, []byte("\ufeff")), true
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
	out, err := decodable(bytes.TrimSpace(data), nil) // nil: a response to our own request needs no count
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
