package bridge

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// maxResource is the limit of a resource in bytes. Larger artifacts are available over HTTP.
const maxResource = 8 << 20

// addResources serves the parts of tasks to which results link.
func (p *principal) addResources(s *mcp.Server) {
	if !p.may(scopeRead) {
		return
	}
	s.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "task", Title: "Part of a task", URITemplate: "codefleet://tasks/{task_id}/{+part}",
		Description: "A part of a task: " + strings.Join(parts, ", ") + ", or artifacts/PATH.",
	}, p.readResource)
}

func (p *principal) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "codefleet" || u.Host != "tasks" {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	id, part, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	data, media, err := p.part(ctx, id, part)
	e, ok := errors.AsType[*client.APIError](err)
	if ok && e.Status == http.StatusNotFound || errors.Is(err, client.ErrNotEnded) {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: publicMessage(err)}
	}
	c := &mcp.ResourceContents{URI: uri, MIMEType: media}
	if utf8.Valid(data) {
		c.Text = string(data)
	} else {
		c.Blob = data
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{c}}, nil
}

// part reads a part of a task. media is its media type.
func (p *principal) part(ctx context.Context, id, part string) (data []byte, media string, err error) {
	r, err := p.fleet.Result(ctx, id)
	if err != nil {
		return nil, "", err
	}
	if data, media, ok := textOf(&r, part); ok {
		return data, media, nil
	}
	name, ok := strings.CutPrefix(part, "artifacts/")
	if !ok {
		return nil, "", &client.APIError{Status: http.StatusNotFound}
	}
	for _, a := range r.Artifacts {
		if a.Path == name {
			media = a.MediaType
		}
	}
	f, err := p.fleet.Artifact(ctx, id, name)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, maxResource+1))
	if err == nil && len(data) > maxResource {
		err = errTooLarge
	}
	return data, media, err
}
