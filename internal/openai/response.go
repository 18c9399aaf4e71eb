package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

const maxError = 64 << 10 // bytes that are read of an error response

// ErrTooLarge means that a response is larger than any valid one.
var ErrTooLarge = errors.New("the endpoint's response is too large")

var errLongEvent = errors.New("an event of the stream is too long")

// limits are the maximum sizes of a response, in bytes.
type limits struct {
	body int64
	line int // 0 means no limit
}

// bounded is a body whose Read fails when the body exceeds the limits.
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

// statusError returns the error in a response. It reads the error formats of OpenAI and of other servers.
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
		errorBody
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &body) != nil {
		return e // an HTML page of a proxy
	}
	f := body.errorBody
	if len(body.Error) > 0 && string(body.Error) != "null" {
		f = parseErrorBody(body.Error)
	}
	e.Message, e.Code, e.Param = stringOf(f.Message), stringOf(f.Code), stringOf(f.Param)
	return e
}

// errorBody is an error in JSON. Each field may be missing or have a type other than string.
type errorBody struct {
	Message json.RawMessage `json:"message"`
	Code    json.RawMessage `json:"code"`
	Param   json.RawMessage `json:"param"`
}

// parseErrorBody reads an object, or a string that is the message.
func parseErrorBody(raw json.RawMessage) errorBody {
	var e errorBody
	if json.Unmarshal(raw, &e) != nil {
		return errorBody{Message: raw}
	}
	return e
}

// stringOf returns the text of a JSON string. For other types it returns "", since some servers send numbers and null.
func stringOf(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // leaves s empty if raw is not a string
	return s
}
