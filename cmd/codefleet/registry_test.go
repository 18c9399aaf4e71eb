package main

import (
	"log/slog"
	"net/http/httptest"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"
)

// startRegistry serves an archive as an image of a registry. Its address is in $REGISTRY.
func startRegistry(ts *testscript.TestScript, _ bool, args []string) {
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug))))
	ts.Defer(server.Close)
	addr := strings.TrimPrefix(server.URL, "http://")
	image, err := tarball.ImageFromPath(ts.MkAbs(args[0]), nil)
	ts.Check(err)
	ref, err := name.ParseReference(addr + "/" + args[1])
	ts.Check(err)
	ts.Check(remote.Write(ref, image))
	ts.Setenv("REGISTRY", addr)
}
