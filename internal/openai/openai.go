// Package openai makes the two calls of OpenAI's HTTP protocol that the fleet needs, a streamed chat completion and
// embeddings, to OpenAI itself, an Azure OpenAI resource, or any server that implements the protocol
// (https://platform.openai.com/docs/api-reference). Its key type is Client. It does not retry, has no list of models,
// and reads nothing from the environment except the proxy, as net/http does.
//
// Requests and streams go through OpenAI's SDK. What the SDK leaves open is added here: bounds on the size of an
// answer, errors that keep the headers and accept the error formats of other servers, no redirects, and no headers that
// describe this machine.
package openai

import (
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

// Endpoint is the address and the key of a server. With Deployment it is an Azure OpenAI resource.
type Endpoint struct {
	BaseURL    string // default OpenAI's; for Azure the resource's endpoint
	APIKey     string // empty for a server without keys
	Deployment string // Azure
	APIVersion string // Azure; default 2024-10-21
	Client     *http.Client
}

// Client is safe for concurrent use.
type Client struct {
	chat       sdk.ChatCompletionService
	embeddings sdk.EmbeddingService
}

// New checks the endpoint; it does not call. Its errors do not repeat the base URL, which may hold a password.
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

	query := base.Query() // the SDK drops the query of a base URL
	switch {
	case e.Deployment != "":
		base = base.JoinPath("openai", "deployments", url.PathEscape(e.Deployment))
		query.Set("api-version", defaultAPIVersion)
		if e.APIVersion != "" {
			query.Set("api-version", e.APIVersion)
		}
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

// StatusError is an answer other than 2xx. Its texts are those of the endpoint: they may repeat the key.
type StatusError struct {
	Status  int
	Header  http.Header
	Message string
	Code    string // such as content_filter; may be empty
	Param   string // the parameter that is wrong; may be empty
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("endpoint answered %d %s", e.Status, http.StatusText(e.Status))
}

// ConnectionError is the lack of an answer: no connection, a broken one, or a context that ended. It names no URL.
type ConnectionError struct{ Err error }

func (e *ConnectionError) Error() string { return "no connection: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// guard applies to one request what the SDK leaves open: its headers, the errors of its answer, and the answer's size.
func guard(accept string, bounds limits) option.RequestOption {
	return option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Stainless-") {
				r.Header.Del(name) // the SDK's description of this machine
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

// failure is the error of a request. A context that ended is a *ConnectionError, which the SDK reports bare.
func failure(ctx context.Context, err error, reading string) error {
	if _, ok := errors.AsType[*StatusError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*ConnectionError](err); ok {
		return err
	}
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return &ConnectionError{err}
	}
	return fmt.Errorf("%s: %w", reading, err)
}
