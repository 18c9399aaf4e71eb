package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"path"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const (
	pullTimeout     = 30 * time.Minute // time limit for a whole image
	registryTimeout = 30 * time.Second // time limit to connect, and to receive the first byte of a response
)

// openReference opens an image in a registry. If it exists for several platforms, openReference opens the one for this
// machine. Credentials are those of `docker login`. The layers are downloaded when they are unpacked.
func openReference(ctx context.Context, reference string) (source, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return source{}, fmt.Errorf("%w: neither a path nor a reference: %w", ErrMissing, err)
	}
	ctx, stop := context.WithTimeout(ctx, pullTimeout)
	src, err := openRemote(ctx, ref)
	if err != nil {
		stop()
		return source{}, err
	}
	src.close = stop
	return src, nil
}

func openRemote(ctx context.Context, ref name.Reference) (source, error) {
	image, err := remote.Image(ref,
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("codefleet"),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithTransport(registryTransport{&http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: registryTimeout}).DialContext,
			TLSHandshakeTimeout:   registryTimeout,
			ResponseHeaderTimeout: registryTimeout,
			IdleConnTimeout:       registryTimeout,
			ForceAttemptHTTP2:     true,
		}}))
	if err != nil {
		return source{}, remoteError(ctx, err)
	}
	m, err := image.Manifest()
	if err != nil {
		return source{}, remoteError(ctx, err)
	}
	if err := checkSize("configuration", m.Config.Size); err != nil {
		return source{}, err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return source{}, remoteError(ctx, err)
	}
	blobs, err := image.Layers()
	if err != nil {
		return source{}, remoteError(ctx, err)
	}
	layers := make([]layer, len(blobs))
	for i, b := range blobs {
		layers[i] = layer{name: m.Layers[i].Digest.String(), open: func() (io.ReadCloser, error) {
			blob, err := b.Compressed()
			if err != nil {
				return nil, remoteError(ctx, err)
			}
			return blob, nil
		}}
	}
	return newSource(config, layers)
}

// remoteError returns ErrMissing if the registry does not have the image, refuses it, fails or cannot be reached, and
// otherwise ErrBroken. After the end of ctx it returns the cause instead.
func remoteError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("pull: %w", context.Cause(ctx))
	}
	if errors.Is(err, ErrMissing) {
		return err
	}
	_, refused := errors.AsType[*transport.Error](err)
	_, network := errors.AsType[net.Error](err)
	if refused || network {
		return fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

// registryTransport bounds manifests and indexes, and marks the errors of reading a response with ErrMissing, unless
// the request's context has ended: a connection that ends early does not mean that the image is broken. Where the
// response is used, its errors have many types, and some are not exported.
type registryTransport struct{ http.RoundTripper }

func (t registryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		body := &responseBody{r.Context(), response.Body, math.MaxInt64}
		if path.Base(path.Dir(r.URL.Path)) == "manifests" { // not the name of the repository
			body.left = maxText
		}
		response.Body = body
	}
	return response, err
}

type responseBody struct {
	ctx context.Context //nolint:containedctx // of the request
	io.ReadCloser
	left int64 // how many bytes may still be read
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	switch {
	case b.left < 0:
		return n, broken("manifest", fmt.Errorf("it has more than %d bytes", maxText))
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case b.ctx.Err() != nil:
		return n, context.Cause(b.ctx)
	}
	return n, fmt.Errorf("%w: %w", ErrMissing, err)
}
