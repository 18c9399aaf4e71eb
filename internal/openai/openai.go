// Package openai makes the two calls of OpenAI's HTTP protocol that the fleet needs, a streamed chat completion and
// embeddings, against OpenAI itself, an Azure OpenAI resource, or any server that speaks the protocol
// (https://platform.openai.com/docs/api-reference). Its key type is Client. It does not retry, knows no model by name,
// and reads nothing from the environment but what net/http reads (the proxy).
//
// It is our own because the libraries do more than that and less: the official one takes minutes to compile; the
// small one refuses parameters by the model's name before it asks, cannot say temperature 0, and drops the headers of
// a failed answer, Retry-After among them.
package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

const (
	defaultBase       = "https://api.openai.com/v1"
	defaultAPIVersion = "2024-10-21" // Azure's

	maxError = 64 << 10 // bytes of a failed answer that are read
)

// ErrTooLarge is the error of an answer that is longer than any the protocol has use for.
var ErrTooLarge = errors.New("the endpoint's answer is too large")

// Endpoint says where the calls go. With Deployment it is an Azure OpenAI resource.
type Endpoint struct {
	BaseURL    string // default OpenAI's; for Azure the resource's endpoint
	APIKey     string // may be empty for a server that asks for none
	Deployment string // Azure
	APIVersion string // Azure; default 2024-10-21
	Client     *http.Client
}

// Client is safe for concurrent use.
type Client struct {
	base   *url.URL
	header http.Header
	http   *http.Client
}

// New checks the endpoint; it does not call.
func New(e Endpoint) (*Client, error) {
	address := e.BaseURL
	if address == "" && e.Deployment == "" {
		address = defaultBase
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errors.New("the endpoint's base URL is not an http(s) URL") // its text may hold a password
	}
	header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"codefleet"}}
	switch {
	case e.Deployment != "":
		base = base.JoinPath("openai", "deployments", url.PathEscape(e.Deployment))
		query := base.Query()
		query.Set("api-version", defaultAPIVersion)
		if e.APIVersion != "" {
			query.Set("api-version", e.APIVersion)
		}
		base.RawQuery = query.Encode()
		header.Set("Api-Key", e.APIKey)
	case e.APIKey != "":
		header.Set("Authorization", "Bearer "+e.APIKey)
	}
	client := http.Client{}
	if e.Client != nil {
		client = *e.Client
	}
	// A redirect would take the key, or the tenant's task, to an address that nobody configured.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{base: base, header: header, http: &client}, nil
}

// StatusError is an answer other than 2xx. Its texts are the endpoint's own words: they may repeat the key.
type StatusError struct {
	Status  int
	Header  http.Header
	Message string
	Code    string // such as content_filter; empty when the endpoint does not say
	Param   string // the parameter that is at fault, likewise
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("endpoint answered %d %s", e.Status, http.StatusText(e.Status))
}

// ConnectionError is no answer at all: no connection, a cut one, or a context that ended. It names no URL.
type ConnectionError struct{ Err error }

func (e *ConnectionError) Error() string { return "no connection: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// post sends a request and returns the body of the answer, which the caller closes. At most limit bytes of it can be read;
// then its error is ErrTooLarge.
func (c *Client) post(ctx context.Context, path, accept string, request any, limit int64) (io.ReadCloser, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath(path).String(), bytes.NewReader(data))
	if err != nil {
		return nil, withoutURL(err)
	}
	r.Header = c.header.Clone()
	r.Header.Set("Accept", accept)
	response, err := c.http.Do(r)
	if err != nil {
		return nil, withoutURL(err)
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		return nil, statusError(response)
	}
	return &bounded{ReadCloser: response.Body, left: limit}, nil
}

func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return &ConnectionError{err}
}

// statusError reads what servers say in the protocol's place for it, and in the places that they use instead.
func statusError(r *http.Response) *StatusError {
	e := &StatusError{Status: r.StatusCode, Header: r.Header}
	if r.StatusCode/100 == 3 {
		e.Message = "it redirects: name the address that it redirects to as the base URL"
		return e
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxError))
	if err != nil {
		return e // the status says enough
	}
	var body struct {
		fault
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &body) != nil {
		return e // a proxy's page
	}
	said := body.fault
	if len(body.Error) > 0 && string(body.Error) != "null" {
		said = faultOf(body.Error)
	}
	e.Message, e.Code, e.Param = text(said.Message), text(said.Code), text(said.Param)
	return e
}

// fault is what an endpoint says went wrong; every part may be of another type, or missing.
type fault struct {
	Message json.RawMessage `json:"message"`
	Code    json.RawMessage `json:"code"`
	Param   json.RawMessage `json:"param"`
}

// faultOf reads an object, or a text alone.
func faultOf(raw json.RawMessage) fault {
	var f fault
	if json.Unmarshal(raw, &f) != nil {
		return fault{Message: raw}
	}
	return f
}

// text is a JSON string's text; "" for all else: some servers send numbers and null.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// bounded is a body that ends with an error when there is too much of it.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, ErrTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
