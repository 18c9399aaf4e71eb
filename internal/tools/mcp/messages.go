package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/text"
)

// Error codes of the responses that messageReader substitutes.
const (
	codeTooLarge  = -32099 // the response exceeds the limit
	codeMalformed = -32098 // the response is not valid JSON, not a result that the SDK can decode, or asks for input
	codeServer    = -32097 // the server's error has a code that here means something else
)

// messageReader reads a server's messages, one per line, and filters most of those that would end the connection. A
// line that is not a message goes to onInvalid, because many servers print to the wrong stream. A response that
// is too large or malformed (it may contain NaN) is replaced with an error response to the same
// request, so that only one call fails, at once and without keeping more than limit bytes.
type messageReader struct {
	source    io.ReadCloser
	in        *bufio.Reader
	limit     int // bytes per message
	onInvalid func(line string)
	requests  *requests // may be nil
	unread    []byte    // the rest of the current message
}

func newMessageReader(source io.ReadCloser, limit int, onInvalid func(string)) *messageReader {
	return &messageReader{source: source, in: bufio.NewReaderSize(source, 64<<10), limit: limit, onInvalid: onInvalid}
}

func (r *messageReader) Close() error { return r.source.Close() }

func (r *messageReader) Read(p []byte) (int, error) {
	for len(r.unread) == 0 {
		line, err := r.nextMessage()
		if err != nil {
			return 0, err
		}
		r.unread = line
	}
	n := copy(p, r.unread)
	r.unread = r.unread[n:]
	return n, nil
}

// nextMessage reads one line and returns its message, or all messages of a batch, with newlines. It returns nil if the
// line is not a message.
func (r *messageReader) nextMessage() ([]byte, error) {
	line, tail, size, err := r.readLine()
	if err != nil {
		return nil, err
	}
	if size > r.limit {
		return r.replaceOversized(line, tail, size)
	}
	trimmed := bytes.TrimSpace(line)
	if len(trimmed) == 0 {
		return nil, nil
	}
	if batch := []json.RawMessage(nil); trimmed[0] == '[' && json.Unmarshal(trimmed, &batch) == nil {
		var all []byte
		for _, data := range batch {
			message, err := r.message(data)
			if err != nil {
				return nil, err
			}
			all = append(all, message...)
		}
		return all, nil
	}
	return r.message(trimmed)
}

// message returns a message with a newline, in a form that the SDK can decode, or nil if the SDK does not need one. It
// passes data that is not a message to onInvalid, which gets at most one byte more than maxLine, to see that it is
// longer. An error ends the connection.
func (r *messageReader) message(data []byte) ([]byte, error) {
	out, err := decodable(data, r.requests)
	if errors.Is(err, errTooManyRequests) || out == nil && errors.Is(err, errUnreadable) {
		return nil, err
	}
	if err != nil && out == nil { // else it is a response, whose content does not belong in logs
		r.onInvalid(string(data[:min(len(data), maxLine+1)]))
	}
	if out == nil {
		return nil, nil
	}
	return append(bytes.TrimSuffix(out, []byte("\n")), '\n'), nil
}

// decodable returns message in a form that the SDK decodes without losing digits of numbers (see exactResult), or nil
// if the SDK does not need it. It returns an error for a message that the SDK cannot decode, or that asks for input,
// and, if that is a response with an id, an error response to the same request. If the server has too many open
// requests, the error is errTooManyRequests.
func decodable(message []byte, open *requests) (out []byte, err error) {
	defer func() {
		if err != nil && !errors.Is(err, errTooManyRequests) {
			out = malformed(message, err)
		}
	}()
	defer recovered(&err)
	if !json.Valid(message) {
		return nil, errors.New("the response is not valid JSON: " + syntaxError(message))
	}
	decoded, err := jsonrpc.DecodeMessage(message)
	if err != nil {
		return nil, errMalformed(err)
	}
	if request, ok := decoded.(*jsonrpc.Request); ok {
		if !exactID(message, request.ID) { // the response would have another id
			return nil, nil
		}
		if err := open.received(decoded, len(message)); err != nil {
			return nil, err
		}
		return served(request)
	}
	if response, ok := decoded.(*jsonrpc.Response); ok && response.Error != nil {
		return encodeError(response)
	}
	exact := exactResult(message)
	switch err := checkResult(exact); {
	case errors.Is(err, errNeedsInput):
		return nil, err
	case err != nil:
		return nil, errMalformed(err)
	}
	return exact, nil
}

// exactID reports whether the SDK, which makes each number an int64, keeps the id of a message.
func exactID(message []byte, id jsonrpc.ID) bool {
	n, isInt := id.Raw().(int64)
	var m struct {
		ID float64 `json:"id"`
	}
	return !isInt || json.Unmarshal(message, &m) == nil && float64(n) == m.ID && math.Abs(m.ID) < 1<<53
}

// encodeError encodes an error response. It replaces the codes that the SDK and this package use for errors of their
// own: servers use them, too, such as -32002 for a resource that does not exist.
func encodeError(response *jsonrpc.Response) ([]byte, error) {
	wire, ok := errors.AsType[*jsonrpc.Error](response.Error)
	if ok && (transportCode(wire.Code) || wire.Code >= codeTooLarge && wire.Code <= codeServer) {
		wire.Code = codeServer
	}
	return jsonrpc.EncodeMessage(response)
}

// errMalformed returns the error of a response that the SDK cannot decode, without types of this program.
func errMalformed(err error) error {
	why := goType.ReplaceAllString(err.Error(), "a value has the wrong type")
	return fmt.Errorf("the response is malformed: %s", why)
}

var goType = regexp.MustCompile(`(?s)(?:unmarshaling jsonrpc message: )?json: cannot unmarshal .* into Go .*`)

// errUnreadable is the error of a message that cannot be passed to the SDK: the SDK panics at it, or it is not the
// response to its request. If it is no response at all, it ends the connection.
var errUnreadable = errors.New("the server's message could not be read")

// recovered, when it is deferred, turns a panic into errUnreadable.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", errUnreadable, p)
	}
}

// served returns a server's request or notification if the client needs it. Otherwise it returns nil for a
// notification. For a request it then returns one with a method that the SDK does not know, to which the SDK responds
// with an error. The SDK must not handle other messages of untrusted servers: notifications/elicitation/complete makes
// it panic.
func served(r *jsonrpc.Request) ([]byte, error) {
	switch {
	case !r.IsCall() && (r.Method == "notifications/progress" || r.Method == "notifications/tools/list_changed"):
		return jsonrpc.EncodeMessage(r)
	case !r.IsCall():
		return nil, nil
	case r.Method == "ping":
		return jsonrpc.EncodeMessage(&jsonrpc.Request{ID: r.ID, Method: r.Method})
	}
	return jsonrpc.EncodeMessage(&jsonrpc.Request{ID: r.ID, Method: "unsupported: " + r.Method})
}

// malformed returns an error response that replaces a malformed response. It returns nil if the response's id is not
// known, and for other messages, such as a malformed request, or a line of a log that has an id.
func malformed(message []byte, err error) []byte {
	var id json.RawMessage
	if json.Valid(message) {
		id = idOfResponse(message)
	} else {
		id = responseID(message, message[max(0, len(message)-tailBytes):])
	}
	if id == nil {
		return nil
	}
	return errorResponse(id, codeMalformed, text.Truncate(err.Error(), 2*maxMessage)) // classify shortens it
}

// idOfResponse returns the id in valid JSON, or nil if that is not a response.
func idOfResponse(message []byte) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(message, &m) != nil || m["method"] != nil || m["result"] == nil && m["error"] == nil {
		return nil
	}
	id, hasVersion := m["id"], m["jsonrpc"] != nil
	for _, name := range []string{"id", "result", "error", "_meta"} {
		delete(m, name)
	}
	if !hasVersion && len(m) > 0 { // a log line may have an id and an error, too
		return nil
	}
	if len(id) == 0 || bytes.ContainsAny(id[:1], "{[tfn") { // not a string or number
		return nil
	}
	return id
}

// errNeedsInput is the error of a call to which the server responds with questions.
var errNeedsInput = errors.New("the tool asks for user input, which a program cannot provide")

// checkResult returns an error if a message is the response to a call, or a list of tools, that the SDK cannot decode,
// or that asks for input. The SDK would report such a message as it reports a lost connection, or panic.
func checkResult(message []byte) error {
	decoded, err := jsonrpc.DecodeMessage(message) // as the SDK decodes it, whose rules are not those of encoding/json
	if err != nil {
		return err
	}
	response, ok := decoded.(*jsonrpc.Response)
	if !ok || response.Result == nil {
		return nil
	}
	var members struct {
		Content    json.RawMessage `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		IsError    json.RawMessage `json:"isError"`
		Tools      json.RawMessage `json:"tools"`
		Questions  json.RawMessage `json:"inputRequests"`
	}
	err = json.Unmarshal(response.Result, &members)
	switch {
	case err != nil:
	case members.Questions != nil && string(members.Questions) != "null":
		err = errNeedsInput
	case members.Tools != nil:
		err = json.Unmarshal(response.Result, new(sdk.ListToolsResult))
	case members.Content != nil, members.Structured != nil, members.IsError != nil, members.Questions != nil:
		err = json.Unmarshal(response.Result, new(sdk.CallToolResult))
	}
	return err
}

// syntaxError describes the JSON syntax error in a line, with the text around it.
func syntaxError(line []byte) string {
	var v json.RawMessage
	err := json.Unmarshal(line, &v)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at := max(0, min(int(syntax.Offset)-1, len(line)))
		near := line[max(0, at-20):min(len(line), at+10)]
		return fmt.Sprintf("%v, near %s", err, text.Printable(string(bytes.ToValidUTF8(near, []byte("?")))))
	}
	return fmt.Sprint(err)
}

// tailBytes is how many of the last bytes of a response are searched for its id.
const tailBytes = 256

// readLine reads one line. If the line exceeds the limit, it returns only its beginning, and its last bytes
// as tail. size is the size of the whole line.
func (r *messageReader) readLine() (line, tail []byte, size int, err error) {
	for {
		part, err := r.in.ReadSlice('\n')
		if size += len(part); size <= r.limit {
			line = append(line, part...)
		} else {
			if line == nil {
				line = append(line, part...)
			} else if tail == nil {
				tail = append(tail, line[max(0, len(line)-tailBytes):]...)
			}
			tail = append(tail, part...)
			if len(tail) > tailBytes {
				tail = append(tail[:0], tail[len(tail)-tailBytes:]...)
			}
		}
		switch {
		case err == nil:
			return line, tail, size, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && size > 0:
			return append(line, '\n'), tail, size, nil
		default:
			return nil, nil, 0, err
		}
	}
}

// A response has its id before the result or at the end. A request may have its id at the end, too.
var (
	resultFirst = regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"(?:result|error)"\s*:`)
	idFirst     = regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?` +
		`"id"\s*:\s*(\d{1,18}|"[^"\\]{1,64}")\s*,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"(?:result|error)"`)
	idLast = regexp.MustCompile(`,\s*"id"\s*:\s*(\d{1,18}|"[^"\\]{1,64}")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
)

// responseID finds a response's id in its first or last bytes. It returns nil if there is none.
func responseID(line, tail []byte) []byte {
	head := line[:min(len(line), 1024)]
	id := idFirst.FindSubmatch(head)
	if id == nil && (resultFirst.Match(head) || !bytes.Contains(head, []byte(`"method"`))) {
		id = idLast.FindSubmatch(tail)
	}
	if id == nil || !json.Valid(id[1]) {
		return nil
	}
	return id[1]
}

func errorResponse(id []byte, code int, message string) []byte {
	text, _ := json.Marshal(message) // never fails for a string
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`+"\n", id, code, text)
}

// replaceOversized returns an error response in place of a response above the limit. If it cannot find the
// response's id, it returns an error, which ends the connection.
func (r *messageReader) replaceOversized(line, tail []byte, size int) ([]byte, error) {
	id := responseID(line, tail)
	if id == nil {
		return nil, fmt.Errorf("a message without a response id is %d bytes; the limit is %d", size, r.limit)
	}
	return errorResponse(id, codeTooLarge, fmt.Sprintf("the response is %d bytes; the limit is %d", size, r.limit)), nil
}
