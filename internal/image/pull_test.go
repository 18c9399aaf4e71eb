package image_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/codefleet/codefleet/internal/image"
)

// startRegistry starts a registry, and returns its address. handle handles each request, or passes it to the registry.
func startRegistry(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, registry http.Handler)) string {
	t.Helper()
	r := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handle(w, req, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// push pushes an image of the layers, in an index with one for another machine. It returns the index's digest.
func push(t *testing.T, reference string, layers ...[]byte) string {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(l)), nil
		})
		if err == nil {
			img, err = mutate.AppendLayers(img, layer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: empty.Image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: "pdp11"},
		}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		}})
	ref, err := name.ParseReference(reference)
	if err == nil {
		err = remote.WriteIndex(ref, index)
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// TestPull checks that an image of a registry is downloaded and unpacked once, by tag and by digest.
func TestPull(t *testing.T) {
	blobs := 0
	addr := startRegistry(t, func(w http.ResponseWriter, r *http.Request, registry http.Handler) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			blobs++
		}
		registry.ServeHTTP(w, r)
	})
	digest := push(t, addr+"/team/python:3", archiveOf(t, lower...), archiveOf(t, upper...))
	dir := t.TempDir()
	first, err := image.Unpack(t.Context(), image.Options{Path: addr + "/team/python:3", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(merged, tree(t, first.Dir)); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	for n, reference := range []string{"/team/python:3", "/team/python@" + digest} {
		again, err := image.Unpack(t.Context(), image.Options{Path: addr + reference, Dir: dir})
		if want := n + 4; err != nil || again.Dir != first.Dir || again.Digest != first.Digest || blobs != want {
			t.Errorf("Unpack(%s) again = %+v, %v after %d blobs; want %+v after %d: two layers, and the configurations",
				reference, again, err, blobs, first, want)
		}
	}
	large := make([]byte, 5<<20) // larger than a manifest, even compressed
	_, _ = rand.NewChaCha8([32]byte{}).Read(large)
	push(t, addr+"/team/manifests/py:1", archiveOf(t, entry{name: "large", text: string(large)}))
	if _, err := image.Unpack(t.Context(), image.Options{Path: addr + "/team/manifests/py:1", Dir: dir}); err != nil {
		t.Errorf("Unpack of a large layer from team/manifests/py = %v, want nil", err)
	}
}

// cutWriter is a response that ends after a number of bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
	cut  func()
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		_, _ = w.ResponseWriter.Write(p[:w.left])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		w.cut()
	}
	w.left -= len(p)
	return w.ResponseWriter.Write(p)
}

// TestPullFails checks that what a registry does not have, does not give, or gives wrongly, is an error, and nothing is
// left behind.
func TestPullFails(t *testing.T) {
	var status, cut int
	var path, body string
	addr := startRegistry(t, func(w http.ResponseWriter, r *http.Request, registry http.Handler) {
		switch {
		case path == "" || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, path):
			registry.ServeHTTP(w, r)
		case cut > 0:
			registry.ServeHTTP(&cutWriter{w, cut, func() { panic(http.ErrAbortHandler) }}, r)
		default:
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	})
	big := archiveOf(t, entry{name: "big", text: strings.Repeat("x", 2<<20)})
	push(t, addr+"/big:1", big)
	large := "{" + strings.Repeat(" ", 4<<20)
	for what, test := range map[string]struct {
		name   string
		path   string // if not empty, what the paths of the requests contain to which the response differs
		status int    // of this response
		body   string
		cut    int // if not 0, the response is the registry's, and ends after so many bytes
		want   error
	}{
		"no such tag":       {name: addr + "/big:2", want: image.ErrMissing},
		"no such image":     {name: addr + "/none", want: image.ErrMissing},
		"not allowed":       {addr + "/big:1", "/manifests/", http.StatusUnauthorized, "{}", 0, image.ErrMissing},
		"a full registry":   {addr + "/big:1", "/manifests/", http.StatusInsufficientStorage, "", 0, image.ErrMissing},
		"no blobs":          {addr + "/big:1", "/blobs/", http.StatusInsufficientStorage, "", 0, image.ErrMissing},
		"half a manifest":   {name: addr + "/big:1", path: "/manifests/", cut: 10, want: image.ErrMissing},
		"half a config":     {name: addr + "/big:1", path: "/blobs/", cut: 10, want: image.ErrMissing},
		"half a layer":      {name: addr + "/big:1", path: "/blobs/", cut: 500, want: image.ErrMissing},
		"no reference":      {name: "Not A Reference", want: image.ErrMissing},
		"no registry":       {name: "127.0.0.1:1/big:1", want: image.ErrMissing},
		"a missing archive": {name: "none.tar", want: image.ErrMissing},
		"not an image":      {addr + "/big:1", "/manifests/", http.StatusOK, "<html>", 0, image.ErrBroken},
		"a large manifest":  {addr + "/big:1", "/manifests/", http.StatusOK, large, 0, image.ErrBroken},
		"another layer":     {addr + "/big:1", "/blobs/", http.StatusOK, "abc", 0, image.ErrBroken},
		"too large":         {name: addr + "/big:1", want: image.ErrTooLarge},
	} {
		t.Run(what, func(t *testing.T) {
			path, status, body, cut = test.path, test.status, test.body, test.cut
			dir := t.TempDir()
			_, err := image.Unpack(t.Context(), image.Options{Path: test.name, Dir: dir, MaxMB: 1})
			if test.body == large && !strings.Contains(fmt.Sprint(err), "more than 4194304 bytes") {
				t.Errorf("Unpack of an image with a large manifest = %v, want an error with the limit", err)
			}
			if !errors.Is(err, test.want) || errors.Is(err, image.ErrBroken) != errors.Is(test.want, image.ErrBroken) {
				t.Errorf("Unpack(%s) = %v, want %v", test.name, err, test.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("ReadDir = %v, %v; want nothing left behind", left, err)
			}
		})
	}
}

// TestPullCancelled checks that a registry that stalls, in a manifest or in a layer, does not hold up a worker that
// stops, and that the error is why it stops.
func TestPullCancelled(t *testing.T) {
	for path, left := range map[string]int{"/manifests/": 0, "/blobs/": 500} {
		ctx, stop := context.WithCancelCause(t.Context())
		why := errors.New("the worker stops")
		addr := startRegistry(t, func(w http.ResponseWriter, r *http.Request, registry http.Handler) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, path) {
				w = &cutWriter{w, left, func() {
					stop(why)
					<-r.Context().Done()
					panic(http.ErrAbortHandler)
				}}
			}
			registry.ServeHTTP(w, r)
		})
		push(t, addr+"/a:1", archiveOf(t, entry{name: "big", text: strings.Repeat("x", 2<<20)}))
		_, err := image.Unpack(ctx, image.Options{Path: addr + "/a:1", Dir: filepath.Join(t.TempDir(), "i"), MaxMB: 9})
		if !errors.Is(err, why) || errors.Is(err, image.ErrMissing) || errors.Is(err, image.ErrBroken) {
			t.Errorf("Unpack = %v after the end of the context within %s, want %v", err, path, why)
		}
	}
}
