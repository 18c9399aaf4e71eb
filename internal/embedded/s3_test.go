package embedded

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	S3Main()
	goleak.VerifyTestMain(m)
}

func options(t *testing.T, dir string) S3Options {
	t.Helper()
	return S3Options{Dir: dir, Addr: "127.0.0.1:0", AccessKey: "access", SecretKey: "secret-secret", Bucket: "fleet"}
}

func TestStartS3(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s3")
	s, err := StartS3(t.Context(), options(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Endpoint()+"/fleet", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("unsigned GET = %d, want %d", resp.StatusCode, http.StatusForbidden)
	}

	_, err = StartS3(t.Context(), options(t, dir))
	if err == nil || !strings.Contains(err.Error(), ErrInUse.Error()) {
		t.Errorf("second StartS3 on the same directory = %v, want %q", err, ErrInUse)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	if err := syscall.Kill(s.Pid(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("kill(server, 0) after Close = %v, want %v", err, syscall.ESRCH)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o700 {
		t.Errorf("mode of the data directory = %v, want 0700", got)
	}
}

func TestStartS3PortInUse(t *testing.T) {
	s, err := StartS3(t.Context(), options(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	o := options(t, t.TempDir())
	o.Addr = s.Endpoint()
	if _, err := StartS3(t.Context(), o); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("StartS3 on a used port = %v, want address already in use", err)
	}
}
