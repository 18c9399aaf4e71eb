package image_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
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

// startRegistry starts a registry, and returns its address. handle, if not nil, answers instead if it returns true.
func startRegistry(t *testing.T, handle func(w http.ResponseWriter, r *http.Request) bool) string {
	t.Helper()
	r := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if handle == nil || !handle(w, req) {
			r.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// push pushes an image of the layers, in an index with one for another machine.
func push(t *testing.T, reference string, layers ...[]byte) {
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
}

// TestPull checks that an image of a registry is downloaded and unpacked once, by tag and by digest.
func TestPull(t *testing.T) {
	blobs := 0
	addr := startRegistry(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			blobs++
		}
		return false
	})
	push(t, addr+"/team/python:3", archiveOf(t, lower...), archiveOf(t, upper...))
	dir := t.TempDir()
	first, err := image.Unpack(t.Context(), image.Options{Path: addr + "/team/python:3", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(merged, tree(t, first.Dir)); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	again, err := image.Unpack(t.Context(), image.Options{Path: addr + "/team/python:3", Dir: dir})
	if err != nil || again.Dir != first.Dir || again.Digest != first.Digest || blobs != 4 {
		t.Errorf("Unpack again = %+v, %v after %d blobs; want %+v after 4: two layers, and the configuration twice",
			again, err, blobs, first)
	}
}

// TestPullFails checks that what a registry does not have, does not give, or gives wrongly, is an error, and nothing is
// left behind.
func TestPullFails(t *testing.T) {
	var status int
	var path, body string
	addr := startRegistry(t, func(w http.ResponseWriter, r *http.Request) bool {
		if status == 0 || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, path) {
			return false
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	})
	big := archiveOf(t, entry{name: "big", text: strings.Repeat("x", 2<<20)})
	push(t, addr+"/big:1", big)
	for what, test := range map[string]struct {
		name   string
		status int // if not 0, the response to requests whose path contains path
		path   string
		body   string
		want   error
	}{
		"no such tag":       {addr + "/big:2", 0, "", "", image.ErrMissing},
		"no such image":     {addr + "/none", 0, "", "", image.ErrMissing},
		"not allowed":       {addr + "/big:1", http.StatusUnauthorized, "/manifests/", "{}", image.ErrMissing},
		"no reference":      {"Not A Reference", 0, "", "", image.ErrMissing},
		"no registry":       {"127.0.0.1:1/big:1", 0, "", "", image.ErrMissing},
		"a missing archive": {"none.tar", 0, "", "", image.ErrMissing},
		"not an image":      {addr + "/big:1", http.StatusOK, "/manifests/", "<html>", image.ErrBroken},
		"another layer":     {addr + "/big:1", http.StatusOK, "/blobs/", "abc", image.ErrBroken},
		"too large":         {addr + "/big:1", 0, "", "", image.ErrTooLarge},
	} {
		t.Run(what, func(t *testing.T) {
			status, path, body = test.status, test.path, test.body
			dir := t.TempDir()
			_, err := image.Unpack(t.Context(), image.Options{Path: test.name, Dir: dir, MaxMB: 1})
			if !errors.Is(err, test.want) {
				t.Errorf("Unpack(%s) = %v, want %v", test.name, err, test.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("ReadDir = %v, %v; want nothing left behind", left, err)
			}
		})
	}
}

// TestPullCancelled checks that a registry that stalls does not hold up a worker that stops.
func TestPullCancelled(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("the worker stops")
	addr := startRegistry(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/") {
			stop(why)
			<-r.Context().Done()
		}
		return false
	})
	_, err := image.Unpack(ctx, image.Options{Path: addr + "/a:1", Dir: filepath.Join(t.TempDir(), "i")})
	if !errors.Is(err, why) || errors.Is(err, image.ErrMissing) {
		t.Errorf("Unpack = %v, want %v", err, why)
	}
}
