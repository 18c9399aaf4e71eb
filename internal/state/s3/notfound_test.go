package s3_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/s3"
)

// answering returns a bucket of a server that gives every request the same response.
func answering(t *testing.T, status int, body string, header ...string) *s3.Objects {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	o, err := s3.Open(s3.Options{Endpoint: server.URL, Bucket: "bucket", AccessKey: "access", SecretKey: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestNotFoundOfAProxy checks that the 404 of a proxy before the object store is a temporary error: no object counts as
// missing.
func TestNotFoundOfAProxy(t *testing.T) {
	ctx := t.Context()
	for name, body := range map[string]string{
		"text": "404 page not found\n", "HTML": "<html><body><h1>404 Not Found</h1></body></html>", "nothing": "",
		"JSON": `{"code":"NoSuchKey"}`, "XML without a code": "<Error><Message>no route</Message></Error>",
	} {
		o := answering(t, http.StatusNotFound, body)
		for op, do := range map[string]func() error{
			"get":  func() error { _, err := o.Get(ctx, "a/HEAD", objects.GetOptions{}); return err },
			"put":  func() error { return o.Put(ctx, "a/p", []byte("x"), objects.Sum([]byte("x"))) },
			"swap": func() error { _, err := o.CompareAndSwap(ctx, "a/HEAD", `"1"`, []byte("x")); return err },
			"list": func() error {
				for _, err := range o.List(ctx, "a/", "") {
					return err
				}
				return nil
			},
			"delete": func() error { return o.Delete(ctx, "a/HEAD") },
		} {
			err := do()
			if !errors.Is(err, objects.ErrTemporary) || errors.Is(err, objects.ErrNotFound) ||
				errors.Is(err, objects.ErrConflict) || !strings.Contains(err.Error(), "proxy") {
				t.Errorf("%s: %s = %v, want %v that names a proxy", name, op, err, objects.ErrTemporary)
			}
		}
	}
}

// TestNotFoundOfStores checks that the responses with which object stores report a missing object are understood.
func TestNotFoundOfStores(t *testing.T) {
	const declaration = `<?xml version="1.0" encoding="UTF-8"?>`
	for name, o := range map[string]*s3.Objects{
		"AWS and Ceph": answering(t, http.StatusNotFound, declaration+
			"\n<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message><Key>a/HEAD</Key>"+
			"<RequestId>ABC</RequestId><HostId>x</HostId></Error>", "X-Amz-Request-Id", "ABC"),
		"without a request id, like Garage": answering(t, http.StatusNotFound, declaration+
			"<Error><Code>NoSuchKey</Code><Message>Key not found</Message><Resource>/bucket/a/HEAD</Resource>"+
			"<Region>garage</Region></Error>", "Content-Type", "application/xml"),
		"with a namespace": answering(t, http.StatusNotFound, declaration+
			`<Error xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Code>NoSuchKey</Code></Error>`),
		"only headers":  answering(t, http.StatusNotFound, "", "X-Amz-Request-Id", "ABC"),
		"MinIO, header": answering(t, http.StatusNotFound, "", "X-Minio-Error-Code", "NoSuchKey"),
	} {
		if _, err := o.Get(t.Context(), "a/HEAD", objects.GetOptions{}); !errors.Is(err, objects.ErrNotFound) {
			t.Errorf("%s: Get() = %v, want %v", name, err, objects.ErrNotFound)
		}
		_, err := o.CompareAndSwap(t.Context(), "a/HEAD", `"1"`, []byte("x"))
		if !errors.Is(err, objects.ErrConflict) {
			t.Errorf("%s: CompareAndSwap() = %v, want %v", name, err, objects.ErrConflict)
		}
		if err := o.Delete(t.Context(), "a/HEAD"); err != nil {
			t.Errorf("%s: Delete() = %v, want nil", name, err)
		}
	}
	lost := answering(t, http.StatusNotFound, declaration+"<Error><Code>NoSuchBucket</Code></Error>")
	if err := lost.Delete(t.Context(), "a/HEAD"); err == nil {
		t.Error("Delete() in a missing bucket = nil, want an error")
	}
	if _, err := lost.Get(t.Context(), "a/HEAD", objects.GetOptions{}); !errors.Is(err, objects.ErrNoBucket) {
		t.Errorf("Get() in a missing bucket = %v, want %v", err, objects.ErrNoBucket)
	}
}
