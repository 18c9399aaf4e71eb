package up_test

import (
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/executor/executortest"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/up"
	"github.com/codefleet/codefleet/internal/up/uptest"
)

// Workers collect the garbage of tenants that an operator has created, too.
func TestCleansCreatedTenants(t *testing.T) {
	conf := uptest.Config(t)
	conf.Execution.Runsc = executortest.Runsc(t)
	conf.Workspaces.CleanEvery = 100 * time.Millisecond
	f, c := uptest.Start(t, up.Options{Config: conf, Worker: process.RunWorker})
	if _, err := c.CreateTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	bucket, err := s3.Open(s3.Options{
		Endpoint: f.File.S3.Endpoint, Bucket: f.File.S3.Bucket, AccessKey: f.File.S3.AccessKey,
		SecretKey: f.File.S3.SecretKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	limit, every := time.After(30*time.Second), time.NewTicker(20*time.Millisecond)
	defer every.Stop()
	for {
		_, err := bucket.Get(t.Context(), "acme/gc/HEAD", objects.GetOptions{})
		if err == nil {
			return
		}
		select {
		case <-every.C:
		case <-limit:
			t.Fatalf("Get(acme/gc/HEAD) after 30s = %v, want the start of a garbage collection", err)
		}
	}
}
