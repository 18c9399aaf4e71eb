package s3_test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/heads"
	"github.com/codefleet/codefleet/internal/state/heads/createonly"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// minio starts a MinIO server with an empty bucket. CODEFLEET_TEST_MINIO names its binary. If that is not set, the test
// is skipped, or fails if CODEFLEET_TEST_NO_SKIP is 1.
func minio(t *testing.T) s3.Options {
	t.Helper()
	binary := os.Getenv("CODEFLEET_TEST_MINIO")
	if binary == "" && os.Getenv("CODEFLEET_TEST_NO_SKIP") == "1" {
		t.Fatal("CODEFLEET_TEST_MINIO is not set: run make test-integration")
	}
	if binary == "" {
		t.Skip("CODEFLEET_TEST_MINIO is not set: run make test-integration")
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // finds a free port
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	opts := s3.Options{Endpoint: "http://" + addr, Bucket: "fleet", AccessKey: "access-key", SecretKey: "secret-secret"}
	cmd := exec.CommandContext(t.Context(), binary, "server", "--quiet", "--address", addr, "--console-address",
		"127.0.0.1:0", t.TempDir())
	cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+opts.AccessKey, "MINIO_ROOT_PASSWORD="+opts.SecretKey,
		"MINIO_BROWSER=off", "MINIO_UPDATE=off", "HOME="+t.TempDir())
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	t.Cleanup(stop)
	bucket, err := s3.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-again.C {
		err := bucket.EnsureBucket(t.Context())
		if err == nil {
			return opts
		}
		if time.Now().After(deadline) {
			stop() // which ends the writes to out
			t.Fatalf("MinIO does not respond: %v\n%s", err, out.String())
		}
	}
}

func TestMinIO(t *testing.T) {
	opts := minio(t)
	opener := func(t *testing.T) objects.Objects { t.Helper(); return open(t, opts) }
	statetest.TestObjects(t, opener)
	t.Run("store", func(t *testing.T) { statetest.TestStore(t, opener) })
	caps, err := heads.Probe(t.Context(), opener(t))
	if err != nil || !caps.Verify || !caps.Fresh || !caps.Ranges || !caps.CanCreate() {
		t.Errorf("Probe() = %+v, %v, want everything honoured", caps, err)
	}
	t.Run("s3-create", func(t *testing.T) {
		statetest.TestObjects(t, func(t *testing.T) objects.Objects {
			t.Helper()
			own := opts
			own.Prefix = "create/" + t.Name()
			bucket := open(t, own)
			return heads.With(bucket, createonly.New(bucket))
		})
	})
}
