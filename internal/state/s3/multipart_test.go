package s3_test

import (
	"bytes"
	"io"
	"testing"

	miniogo "github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestForeignMultipart checks that the embedded store accepts multipart uploads of other S3 clients.
func TestForeignMultipart(t *testing.T) {
	server, err := embedded.StartS3(t.Context(), embedded.S3Options{
		Dir: t.TempDir(), Addr: "127.0.0.1:0", AccessKey: "access", SecretKey: "secret-secret", Bucket: "fleet",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	client, err := miniogo.New(server.Endpoint(),
		&miniogo.Options{Creds: credentials.NewStaticV4("access", "secret-secret", ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	want := []byte(statetest.Random(4, 11<<20))
	_, err = client.PutObject(t.Context(), "fleet", "some/large", bytes.NewReader(want), int64(len(want)),
		miniogo.PutObjectOptions{PartSize: 5 << 20})
	if err != nil {
		t.Fatal(err)
	}
	obj, err := client.GetObject(t.Context(), "fleet", "some/large", miniogo.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer obj.Close()
	if got, err := io.ReadAll(obj); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, %v, want the %d that were put", len(got), err, len(want))
	}
}
