package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxLine is the size limit, in bytes, of one message of a client on standard input: a task with its files.
const maxLine = 48 << 20

// stdioStream is the two streams of a client. The SDK ends the connection at the first line that is not a message it
// accepts. So Read passes on only messages that the SDK accepts, and responds to other lines with an error. It passes
// on an array of messages as one message per line.
type stdioStream struct {
	source io.ReadCloser
	in     *bufio.Reader
	unread []byte // the rest of the current message

	mu  sync.Mutex // protects out
	out io.WriteCloser
}

func newStdioStream(in io.ReadCloser, out io.WriteCloser) *stdioStream {
	return &stdioStream{source: in, in: bufio.NewReaderSize(in, 64<<10), out: out}
}

func (s *stdioStream) Read(p []byte) (int, error) {
	for len(s.unread) == 0 {
		line, tooLong, err := s.line()
		switch {
		case err != nil:
			return 0, err
		case tooLong:
			err = s.refuse(nil, jsonrpc.CodeInvalidRequest, "the message is larger than %d MiB", maxLine>>20)
		case len(line) > 0:
			s.unread, err = s.messages(line)
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, s.unread)
	s.unread = s.unread[n:]
	return n, nil
}

// line reads one line without the white space around it. For a line longer than maxLine, it returns only tooLong.
func (s *stdioStream) line() (line []byte, tooLong bool, err error) {
	for {
		part, err := s.in.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > maxLine; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && (tooLong || len(line) > 0), err == nil:
			return bytes.TrimSpace(line), tooLong, nil
		default:
			return nil, false, err
		}
	}
}

// messages returns the valid messages of a line, each on a line of its own. It responds to the others with errors.
func (s *stdioStream) messages(line []byte) ([]byte, error) {
	if !json.Valid(line) || !utf8.Valid(line) {
		return nil, s.refuse(nil, jsonrpc.CodeParseError, "the line is not JSON in UTF-8: want one message per line")
	}
	batch := []json.RawMessage{line}
	if line[0] == '[' {
		if err := json.Unmarshal(line, &batch); err != nil {
			return nil, err // not possible: it is a valid array
		}
		if len(batch) == 0 {
			return nil, s.refuse(nil, jsonrpc.CodeInvalidRequest, "the array contains no message")
		}
	}
	var all []byte
	for _, message := range batch {
		if err := checkMessage(message); err != nil {
			if err := s.refuse(idOf(message), jsonrpc.CodeInvalidRequest, "not a message: %v", err); err != nil {
				return nil, err
			}
			continue
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, message); err != nil {
			return nil, err // not possible: it is valid JSON
		}
		all = append(append(all, compact.Bytes()...), '\n')
	}
	return all, nil
}

// maxID is the largest absolute value of an id or progress token that is a number: the SDK reads them as floating-point
// numbers, which are exact up to this value.
const maxID = 1 << 53

// checkMessage returns an error for a message that the SDK cannot decode, or that checkID refuses.
func checkMessage(message []byte) error {
	if _, err := jsonrpc.DecodeMessage(message); err != nil {
		return err
	}
	return checkID(message)
}

// checkID returns an error for a message to which the SDK would respond with a different id or progress token, or not
// at all, so that the client would wait forever.
func checkID(message []byte) error {
	var m map[string]json.RawMessage
	_ = json.Unmarshal(message, &m) // if the message is not an object, m stays empty, and the SDK refuses the message
	id, hasID := m["id"]
	if _, isCall := m["method"]; hasID && !isCall && m["result"] == nil && m["error"] == nil {
		return errors.New("method is missing")
	} else if isCall && string(id) == "null" {
		return errors.New("id is null")
	}
	if err := checkExact("id", id); err != nil {
		return err
	}
	var params struct {
		Meta struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if bytes.Contains(m["params"], []byte(`"progressToken"`)) { // else do not parse what may be large
		_ = json.Unmarshal(m["params"], &params) // it has what could be read before an error
	}
	return checkExact("progressToken", params.Meta.ProgressToken)
}

// checkExact returns an error for a number that the SDK would change.
func checkExact(name string, value json.RawMessage) error {
	if len(value) == 0 || !bytes.ContainsAny(value[:1], "-0123456789") {
		return nil
	}
	if n, err := strconv.ParseInt(string(value), 10, 64); err != nil || n > maxID || n < -maxID {
		return fmt.Errorf("%s %.40s: want a string, or a whole number from %d to %d", name, value, -maxID, maxID)
	}
	return nil
}

// checkBody returns an error response if checkID refuses a message of the body, which is one message or an array of
// messages. Otherwise it returns nil.
func checkBody(body []byte) []byte {
	var messages []json.RawMessage
	if json.Unmarshal(body, &messages) != nil {
		messages = []json.RawMessage{body}
	}
	for _, message := range messages {
		if err := checkID(message); err != nil {
			return newRefusal(idOf(message), jsonrpc.CodeInvalidRequest, "not a message: "+err.Error())
		}
	}
	return nil
}

// idOf returns the id of an invalid request if it is a string or a number, and otherwise nil.
func idOf(message []byte) json.RawMessage {
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(message, &m) != nil || len(m.ID) == 0 || bytes.ContainsAny(m.ID[:1], "{[tfn") {
		return nil
	}
	return m.ID
}

// refusal is a JSON-RPC error response. An ID that is not known is null.
type refusal struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   jsonrpc.Error   `json:"error"`
}

// refuse responds to a line with an error. It returns the error of writing the response.
func (s *stdioStream) refuse(id json.RawMessage, code int64, format string, args ...any) error {
	_, err := s.Write(append(newRefusal(id, code, fmt.Sprintf(format, args...)), '\n'))
	return err
}

func newRefusal(id json.RawMessage, code int64, message string) []byte {
	response, err := json.Marshal(refusal{"2.0", id, jsonrpc.Error{Code: code, Message: message}})
	if err != nil {
		panic(err) // not possible: the id is valid JSON
	}
	return response
}

func (s *stdioStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *stdioStream) Close() error { return errors.Join(s.source.Close(), s.out.Close()) }
