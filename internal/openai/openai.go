// Package openai makes the two calls of OpenAI's HTTP protocol that the fleet needs: streamed chat completions and
// embeddings. The server is OpenAI, an Azure OpenAI resource, or any other one that implements the protocol
// (https://platform.openai.com/docs/api-reference). The key type is Client. It does not retry, has no list of models,
// and reads only the proxy from the environment, as net/http does.
//
// Requests and streams go through OpenAI's SDK. This package adds what the SDK lacks: limits on the size of a response,
// and errors that keep the headers and accept the error formats of other servers. It follows no redirects, and drops
// the headers that describe this machine.
package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const (
	defaultBase       = "https://api.openai.com/v1"
	defaultAPIVersion = "2024-10-21" // Azure's
)

// Endpoint describes a server. With a Deployment it is an Azure OpenAI resource.
type Endpoint struct {
	BaseURL    string // the default is OpenAI's; for Azure the resource's endpoint
	APIKey     string // empty for a server without keys
	Deployment string // only for Azure
	APIVersion string // only for Azure; the default is 2024-10-21
	Client     *http.Client
}

// Client sends requests to an endpoint. It is safe for concurrent use.
type Client struct {
	chat       sdk.ChatCompletionService
	embeddings sdk.EmbeddingService
}

// New checks the endpoint. It sends no request. Its errors do not repeat the base URL, which may contain a password.
func New(e Endpoint) (*Client, error) {
	address := e.BaseURL
	if address == "" && e.Deployment == "" {
		address = defaultBase
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errors.New("the endpoint's base URL is not an http(s) URL")
	}
	client := http.Client{}
	if e.Client != nil {
		client = *e.Client
	}
	// A redirect would send the key or the tenant's task to an address that is not configured.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	options := []option.RequestOption{option.WithMaxRetries(0), option.WithHTTPClient(&client)}

	query := base.Query() // the SDK drops the base URL's query
	switch {
	case e.Deployment != "":
		base = base.JoinPath("openai", "deployments", url.PathEscape(e.Deployment))
		query.Set("api-version", cmp.Or(e.APIVersion, defaultAPIVersion))
		options = append(options, option.WithHeader("Api-Key", e.APIKey))
	case e.APIKey != "":
		options = append(options, option.WithAPIKey(e.APIKey))
	}
	for name, values := range query {
		for _, value := range values {
			options = append(options, option.WithQueryAdd(name, value))
		}
	}
	options = append(options, option.WithBaseURL(base.JoinPath("/").String()))
	return &Client{sdk.NewChatCompletionService(options...), sdk.NewEmbeddingService(options...)}, nil
}

// StatusError is a response with a status other than 2xx. The endpoint wrote Message, which may repeat the key.
type StatusError struct {
	Status  int
	Header  http.Header
	Message string
	Code    string // such as content_filter; may be empty
	Param   string // the wrong parameter; may be empty
}

// Error returns the status without the endpoint's message.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the endpoint responded with status %d %s", e.Status, http.StatusText(e.Status))
}

// ConnectionError means that there was no response: the connection failed, or the context ended. It contains no URL.
type ConnectionError struct{ Err error }

func (e *ConnectionError) Error() string { return "no connection: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// guard adds what the SDK lacks to one request: it replaces the headers, converts the errors, and limits the size of
// the response.
func guard(accept string, bounds limits) option.RequestOption {
	return option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Stainless-") {
				r.Header.Del(name) // these describe this machine
			}
		}
		r.Header.Set("User-Agent", "codefleet")
		r.Header.Set("Accept", accept)
		response, err := next(r)
		if err != nil {
			if u, ok := errors.AsType[*url.Error](err); ok {
				err = u.Err
			}
			return nil, &ConnectionError{err}
		}
		if response.StatusCode/100 != 2 {
			defer response.Body.Close()
			return nil, statusError(response)
		}
		response.Body = &bounded{ReadCloser: response.Body, limits: bounds}
		return response, nil
	})
}

// requestError converts an error of the SDK. If the context ended, it returns a *ConnectionError. Errors other than
// *StatusError and *ConnectionError are prefixed with what was attempted.
func requestError(ctx context.Context, err error, attempt string) error {
	if _, ok := errors.AsType[*StatusError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*ConnectionError](err); ok {
		return err
	}
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return &ConnectionError{err}
	}
	return fmt.Errorf("%s: %w", attempt, err)
}
