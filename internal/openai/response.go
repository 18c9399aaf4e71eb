package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

const maxError = 64 << 10 // bytes of an error's body that are read

// ErrTooLarge is the error of an answer that is longer than any valid one.
var ErrTooLarge = errors.New("the endpoint's answer is too large")

var errLongEvent = errors.New("an event of the stream is too long")

// limits bound an answer, in bytes.
type limits struct {
	body int64
	line int // 0: no limit
}

// bounded is a body that ends with an error when it exceeds its limits.
type bounded struct {
	io.ReadCloser
	limits

	line int // bytes since the last line break
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.body <= 0 {
		return 0, ErrTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.body)])
	b.body -= int64(n)
	b.line += n
	if i := bytes.LastIndexByte(p[:n], '\n'); i >= 0 {
		b.line = n - i - 1
	}
	if b.limits.line > 0 && b.line > b.limits.line {
		return n, errLongEvent
	}
	return n, err
}

// statusError reads the error formats of OpenAI and of other servers.
func statusError(r *http.Response) *StatusError {
	e := &StatusError{Status: r.StatusCode, Header: r.Header}
	if r.StatusCode/100 == 3 {
		e.Message = "the endpoint redirects: set the base URL to the address that it redirects to"
		return e
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxError))
	if err != nil {
		return e // the status is enough
	}
	var body struct {
		fault
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &body) != nil {
		return e // a proxy's page
	}
	f := body.fault
	if len(body.Error) > 0 && string(body.Error) != "null" {
		f = parseFault(body.Error)
	}
	e.Message, e.Code, e.Param = stringOf(f.Message), stringOf(f.Code), stringOf(f.Param)
	return e
}

// fault is an error in JSON; every field may have another type or be missing.
type fault struct {
	Message json.RawMessage `json:"message"`
	Code    json.RawMessage `json:"code"`
	Param   json.RawMessage `json:"param"`
}

// parseFault reads an object, or a string that is the message.
func parseFault(raw json.RawMessage) fault {
	var f fault
	if json.Unmarshal(raw, &f) != nil {
		return fault{Message: raw}
	}
	return f
}

// stringOf returns a JSON string's text; "" for any other type: some servers send numbers and null.
func stringOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
