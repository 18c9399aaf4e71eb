package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/codefleet/codefleet/internal/text"
)

// Error codes of the responses that messageReader substitutes.
const (
	codeTooLarge = -32099 // the response exceeds the limit
	codeNotJSON  = -32098 // the response is not valid JSON
)

// messageReader reads a server's messages, one per line, and filters those that would end the connection. A
// line that is not JSON goes to onInvalid, because many servers print to the wrong stream. A response that
// is too large or not valid JSON (it may contain NaN) is replaced with an error response to the same
// request, so that only one call fails, at once and without using memory.
type messageReader struct {
	source    io.ReadCloser
	in        *bufio.Reader
	limit     int // bytes per message
	onInvalid func(line string)
	unread    []byte // the rest of the current message
}

func newMessageReader(source io.ReadCloser, limit int, onInvalid func(string)) *messageReader {
	return &messageReader{source: source, in: bufio.NewReaderSize(source, 64<<10), limit: limit, onInvalid: onInvalid}
}

func (l *messageReader) Close() error { return l.source.Close() }

func (l *messageReader) Read(p []byte) (int, error) {
	for len(l.unread) == 0 {
		line, err := l.nextMessage()
		if err != nil {
			return 0, err
		}
		l.unread = line
	}
	n := copy(p, l.unread)
	l.unread = l.unread[n:]
	return n, nil
}

// nextMessage returns one message with its newline, or nil if the line is not a message.
func (l *messageReader) nextMessage() ([]byte, error) {
	line, tail, size, err := l.readLine()
	if err != nil {
		return nil, err
	}
	if size > l.limit {
		return l.replaceOversized(line, tail, size)
	}
	trimmed := bytes.TrimSpace(line)
	if len(trimmed) == 0 {
		return nil, nil
	}
	if (trimmed[0] == '{' || trimmed[0] == '[') && json.Valid(trimmed) {
		return exactContent(line), nil
	}
	l.onInvalid(text.Printable(string(bytes.ToValidUTF8(trimmed[:min(len(trimmed), maxLine)], []byte("?")))))
	if id := responseID(trimmed, trimmed[max(0, len(trimmed)-tailBytes):]); id != nil {
		return errorResponse(id, codeNotJSON, "the response is not valid JSON: "+syntaxError(trimmed)), nil
	}
	return nil, nil
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

const tailBytes = 256

// readLine reads one line. If the line exceeds the limit, it returns only its beginning, and its last bytes
// as tail. size is the size of the whole line.
func (l *messageReader) readLine() (line, tail []byte, size int, err error) {
	for {
		part, err := l.in.ReadSlice('\n')
		if size += len(part); size <= l.limit {
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

// A response has its id before the result or at the end.
var (
	idFirst = regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?` +
		`"id"\s*:\s*(\d{1,18}|"[^"\\]{1,64}")\s*,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"(?:result|error)"`)
	idLast = regexp.MustCompile(`,\s*"id"\s*:\s*(\d{1,18}|"[^"\\]{1,64}")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
)

// responseID finds a response's id in its first or last bytes. It returns nil if there is none.
func responseID(line, tail []byte) []byte {
	id := idFirst.FindSubmatch(line[:min(len(line), 1024)])
	if id == nil {
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

func (l *messageReader) replaceOversized(line, tail []byte, size int) ([]byte, error) {
	id := responseID(line, tail)
	if id == nil {
		return nil, fmt.Errorf("a message without a response id is %d bytes; the limit is %d", size, l.limit)
	}
	return errorResponse(id, codeTooLarge, fmt.Sprintf("the response is %d bytes; the limit is %d", size, l.limit)), nil
}
