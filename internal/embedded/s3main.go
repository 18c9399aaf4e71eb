package embedded

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"
)

const (
	s3Connections = 1024
	s3MaxParts    = 10_000
	s3CopyLimit   = 5 << 30
)

// S3Main returns at once, unless StartS3 started this process: then it runs the S3 server and exits. Call it first in
// main, and in TestMain of packages that use StartS3.
func S3Main() {
	if os.Getenv(s3Marker) != "s3" {
		return
	}
	if err := serveS3(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveS3(ctx context.Context) error {
	// Ctrl-C on a terminal reaches the whole process group; the parent decides when the server ends.
	signal.Ignore(syscall.SIGINT)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	stdin := bufio.NewReader(os.Stdin)
	line, err := stdin.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	var cfg S3Options
	if err := json.Unmarshal(line, &cfg); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdin) // ends when the parent closes it, or exits
		cancel()
	}()
	return runGateway(ctx, cfg, os.NewFile(3, "ready"))
}

func runGateway(ctx context.Context, cfg S3Options, ready io.WriteCloser) error {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return err
	}
	data, sidecar := filepath.Join(dir, "data"), filepath.Join(dir, "meta")
	if err := os.MkdirAll(filepath.Join(data, cfg.Bucket), 0o700); err != nil {
		return err
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()

	opts := posix.PosixOpts{ValidateBucketNames: true, CopyObjectThreshold: s3CopyLimit}
	opts.SetNewDirPerm(0o700)
	opts.SetNewFilePerm(0o600)
	storer, err := metadata(data, sidecar, &opts)
	if err != nil {
		return err
	}
	backend, err := posix.New(data, storer, opts)
	if err != nil {
		return fmt.Errorf("open %s: %w", data, err)
	}
	s3opts := []s3api.Option{s3api.WithOnListen(func() {
		_, _ = io.WriteString(ready, "ready\n") // fails if the parent has ended; then this process ends too
		ready.Close()
	})}
	if !cfg.NoSync {
		_, xattrs := storer.(meta.XattrMeta)
		flush, err := openFlusher(data, xattrs)
		if err != nil {
			return err
		}
		defer func() { _ = flush.Close() }()
		s3opts = append(s3opts, s3api.WithMiddleware("/", durable(flush)))
	}
	err = embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
		RootUserAccess: cfg.AccessKey, RootUserSecret: cfg.SecretKey,
		Ports:          []string{cfg.Addr},
		MaxConnections: s3Connections, MaxRequests: s3Connections,
		MultipartMaxParts: s3MaxParts,
		KeepAlive:         true, Quiet: true, DisableACLs: true,
		S3Options: s3opts,
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// metadata returns a store of objects' attributes: extended attributes if the file system supports them, or else files
// below sidecar, which it then also sets in opts.
func metadata(data, sidecar string, opts *posix.PosixOpts) (meta.MetadataStorer, error) {
	if err := (meta.XattrMeta{}).Test(data); err == nil {
		return meta.XattrMeta{}, nil
	}
	if err := os.MkdirAll(sidecar, 0o700); err != nil {
		return nil, err
	}
	opts.SideCarDir = sidecar
	return meta.NewSideCar(sidecar)
}

// durable flushes each object to disk before its PUT is acknowledged, because the gateway itself never syncs. A
// workspace's HEAD is written after everything that it refers to was acknowledged, so a power failure cannot leave a
// HEAD without its objects. Objects of the start-up probe are not flushed.
func durable(flush *flusher) fiber.Handler {
	return func(c fiber.Ctx) error {
		path := string(c.Request().URI().PathOriginal()) // before the gateway unescapes it
		err := c.Next()
		if err != nil || !createsObject(c) || c.Response().StatusCode() != fiber.StatusOK ||
			strings.Contains(c.Path(), "/_probe/") {
			return err
		}
		if err := flush.Sync(path); err != nil {
			return fmt.Errorf("flush object: %w", err)
		}
		return nil
	}
}

// createsObject reports whether a request creates an object: a PUT, unless it uploads only a part of an object, or the
// completion of a multipart upload.
func createsObject(c fiber.Ctx) bool {
	inParts := c.Request().URI().QueryArgs().Has("uploadId")
	return c.Method() == fiber.MethodPut && !inParts || c.Method() == fiber.MethodPost && inParts
}
