// Package s3 implements objects.Objects with a bucket of any S3-compatible service. CompareAndSwap works only if the
// service honours conditional writes; package heads is for those that do not.
package s3

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/text"
)

// Options locates a bucket.
type Options struct {
	Endpoint  string // http://host:port or https://host
	Region    string // the default is us-east-1
	Bucket    string
	Prefix    string // prepended to every key, with a slash, unless it is empty
	AccessKey string // if empty, credentials come from the standard environment variables, files and instance roles
	SecretKey string
	Transport http.RoundTripper // the default is NewTransport()
}

// Objects is a bucket, or a prefix of one. See objects.Objects for the methods. No method retries; errors that may be
// retried wrap objects.ErrTemporary.
type Objects struct {
	core   *minio.Core
	bucket string
	prefix string
}

var _ objects.Objects = (*Objects)(nil)

const (
	idlePerHost    = 64
	dialTimeout    = 10 * time.Second
	headerTimeout  = 30 * time.Second
	keepAlive      = 30 * time.Second
	deleteParallel = 8
)

// Open returns the bucket that opts locates. It sends no request.
func Open(opts Options) (*Objects, error) {
	endpoint, err := url.Parse(opts.Endpoint)
	if err != nil || endpoint.Host == "" || (endpoint.Scheme != "http" && endpoint.Scheme != "https") ||
		strings.Trim(endpoint.Path, "/") != "" {
		return nil, fmt.Errorf("s3 endpoint %q: want http://host:port or https://host",
			text.HideCredentials(opts.Endpoint))
	}
	if opts.Region == "" {
		opts.Region = "us-east-1" // otherwise the client would request the bucket's region
	}
	if opts.Transport == nil {
		opts.Transport = NewTransport()
	}
	core, err := minio.NewCore(endpoint.Host, &minio.Options{
		Creds:  opts.credentials(),
		Secure: endpoint.Scheme == "https", Region: opts.Region, Transport: identified{opts.Transport},
		// MaxRetries counts the first attempt too. If the response to a conditional PUT is lost, a second attempt would
		// lose the race against the first.
		MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("s3 endpoint %q: %w", text.HideCredentials(opts.Endpoint), err)
	}
	prefix := strings.Trim(opts.Prefix, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &Objects{core: core, bucket: opts.Bucket, prefix: prefix}, nil
}

func (o Options) credentials() *credentials.Credentials {
	if o.AccessKey != "" {
		return credentials.NewStaticV4(o.AccessKey, o.SecretKey, "")
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
	})
}

// NewTransport returns a transport for many small concurrent requests.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
		MaxIdleConns:          idlePerHost * 2,
		MaxIdleConnsPerHost:   idlePerHost,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: headerTimeout,
		ExpectContinueTimeout: dialTimeout,
		DisableCompression:    true, // objects are stored compressed and verified byte by byte
		ForceAttemptHTTP2:     true,
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        64 << 10,
	}
}

// EnsureBucket creates the bucket if it does not exist.
func (o *Objects) EnsureBucket(ctx context.Context) error {
	exists, err := o.core.BucketExists(ctx, o.bucket)
	if exists || err != nil {
		return o.wrap("look for bucket", o.bucket, err)
	}
	err = o.core.MakeBucket(ctx, o.bucket, minio.MakeBucketOptions{})
	switch code := minio.ToErrorResponse(err).Code; {
	case err == nil, code == minio.BucketAlreadyOwnedByYou, code == minio.BucketAlreadyExists:
		return nil
	default:
		return o.wrap("create bucket", o.bucket, err)
	}
}

// Get implements objects.Objects.
func (o *Objects) Get(ctx context.Context, key string, opts objects.GetOptions) (objects.Object, error) {
	var get minio.GetObjectOptions
	if opts.IfNoneMatch != "" {
		if err := get.SetMatchETagExcept(opts.IfNoneMatch); err != nil {
			return objects.Object{}, o.wrap("get", key, err)
		}
	}
	ranged := opts.Offset != 0 || opts.Length != 0
	if ranged {
		end := int64(0) // to the end of the object
		if opts.Length > 0 {
			end = opts.Offset + opts.Length - 1
		}
		if err := get.SetRange(opts.Offset, end); err != nil {
			return objects.Object{}, o.wrap("get", key, err)
		}
	}
	body, info, _, err := o.core.GetObject(ctx, o.bucket, o.prefix+key, get)
	if err != nil {
		return objects.Object{}, o.wrap("get", key, err)
	}
	defer body.Close()
	if ranged && opts.Length > 0 && info.Size != opts.Length {
		return objects.Object{}, o.wrap("get", key,
			fmt.Errorf("the range has %d bytes, want %d", info.Size, opts.Length))
	}
	data, err := readBody(body, info.Size, opts.Buffer)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		err = fmt.Errorf("%w: %w", objects.ErrTemporary, err)
	}
	if err != nil {
		return objects.Object{}, fmt.Errorf("get %s: %w", keyInErrors(key), err)
	}
	return objects.Object{Data: data, ETag: info.ETag, Modified: info.LastModified}, nil
}

func readBody(body io.Reader, size int64, buf []byte) ([]byte, error) {
	if size < 0 {
		return io.ReadAll(body)
	}
	data := slices.Grow(buf[:0], int(size))[:size]
	_, err := io.ReadFull(body, data)
	return data, err
}

// Put implements objects.Objects.
func (o *Objects) Put(ctx context.Context, key string, data []byte, sum objects.Digest) error {
	_, err := o.core.PutObject(ctx, o.bucket, o.prefix+key, bytes.NewReader(data), int64(len(data)),
		"", hex.EncodeToString(sum[:]), putOptions())
	return o.wrap("put", key, err)
}

// putOptions returns options for a single PUT that is signed with the body's SHA-256, even over TLS.
func putOptions() minio.PutObjectOptions {
	return minio.PutObjectOptions{
		ContentType: "application/octet-stream", DisableContentSha256: true, DisableMultipart: true,
	}
}

// CompareAndSwap implements objects.Objects.
func (o *Objects) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	put := putOptions()
	if old == "" {
		put.SetMatchETagExcept("*")
	} else {
		put.SetMatchETag(old)
	}
	sum := objects.Sum(data)
	info, err := o.core.PutObject(ctx, o.bucket, o.prefix+key, bytes.NewReader(data), int64(len(data)),
		"", hex.EncodeToString(sum[:]), put)
	if err != nil {
		switch r := minio.ToErrorResponse(err); {
		case lostRace(r):
			return "", fmt.Errorf("swap %s: %w: %s", keyInErrors(key), objects.ErrConflict, r.Code)
		case r.StatusCode == http.StatusNotImplemented:
			return "", fmt.Errorf("swap %s: %w: %s", keyInErrors(key), objects.ErrUnsafe, r.Code)
		}
		return "", o.wrap("swap", key, err)
	}
	return info.ETag, nil
}

// lostRace reports whether a response means that a conditional PUT lost a race. The usual status is 412. AWS responds
// with 409 to concurrent writers, and some stores respond with 404 to If-Match on a missing object.
func lostRace(r minio.ErrorResponse) bool {
	switch r.StatusCode {
	case http.StatusPreconditionFailed:
		return true
	case http.StatusConflict:
		return r.Code == "ConditionalRequestConflict" || r.Code == "OperationAborted"
	case http.StatusNotFound:
		return r.Code == minio.NoSuchKey
	default:
		return false
	}
}

// List implements objects.Objects.
func (o *Objects) List(ctx context.Context, prefix, after string) iter.Seq2[objects.ObjectInfo, error] {
	return func(yield func(objects.ObjectInfo, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		opts := minio.ListObjectsOptions{Prefix: o.prefix + prefix, Recursive: true}
		if after != "" {
			opts.StartAfter = o.prefix + after
		}
		for info := range o.core.ListObjectsIter(ctx, o.bucket, opts) {
			if info.Err != nil {
				yield(objects.ObjectInfo{}, o.wrap("list", prefix, info.Err))
				return
			}
			key := strings.TrimPrefix(info.Key, o.prefix)
			if key <= after {
				continue // a store that ignores start-after sends these
			}
			if !yield(objects.ObjectInfo{Key: key, Size: info.Size, Modified: info.LastModified}, nil) {
				return
			}
		}
	}
}

// Delete implements objects.Objects.
func (o *Objects) Delete(ctx context.Context, keys ...string) error {
	for chunk := range slices.Chunk(keys, deleteParallel) {
		errs := make(chan error, len(chunk))
		for _, key := range chunk {
			go func() {
				err := o.wrap("delete", key, o.core.RemoveObject(
					ctx, o.bucket, o.prefix+key, minio.RemoveObjectOptions{}))
				if errors.Is(err, objects.ErrNotFound) { // some stores say so
					err = nil
				}
				errs <- err
			}()
		}
		var err error
		for range chunk {
			err = errors.Join(err, <-errs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wrap adds the request to its error, and classifies the error. It omits the URL, which repeats the key.
func (o *Objects) wrap(op, key string, err error) error {
	if err == nil {
		return nil
	}
	key = keyInErrors(key)
	r := minio.ToErrorResponse(err)
	retry := temporary(err, r)
	if e, ok := errors.AsType[*url.Error](err); ok {
		if err = e.Err; strings.Contains(err.Error(), e.URL) { // the client's text for a closed connection
			err = io.ErrUnexpectedEOF
		}
	}
	var kind error
	switch {
	case r.StatusCode == http.StatusNotModified:
		kind = objects.ErrNotModified
	case r.Code == minio.NoSuchKey:
		kind = objects.ErrNotFound
	case r.Code == minio.NoSuchBucket:
		kind = objects.ErrNoBucket
	case retry:
		kind = objects.ErrTemporary
	case r.StatusCode == http.StatusForbidden, r.StatusCode == http.StatusUnauthorized:
		kind = objects.ErrDenied
	default:
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	return fmt.Errorf("%s %s: %w: %w", op, key, kind, err)
}

// keyInErrors returns a key as it appears in errors, and so in logs. It omits the path of a mirrored file, which a
// tenant's program chose.
func keyInErrors(key string) string {
	const files = "/files/"
	if i := strings.Index(key, files); i >= 0 {
		return key[:i+len(files)] + "…"
	}
	return key
}

// temporary reports whether a request that failed with err may be retried. r is the response, if there was one.
func temporary(err error, r minio.ErrorResponse) bool {
	switch r.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case 0: // no response
	default:
		return r.Code == "SlowDown" || r.Code == "RequestTimeout"
	}
	if errors.Is(err, context.Canceled) {
		return false
	}
	var netErr net.Error
	var urlErr *url.Error
	return errors.As(err, &netErr) || errors.As(err, &urlErr) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.EOF)
}
