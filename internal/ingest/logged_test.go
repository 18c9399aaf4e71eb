package ingest_test

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// TestServerErrorsInTheLog checks that the log has the cause of a server error, but neither a tenant's file names nor
// keys of the object store.
func TestServerErrorsInTheLog(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	wantStatus(t, f, 200, nil, "PUT", main+"/files/secret-name.txt", nil, "content-of-the-file")
	f.Objects.SetFault(func(c mem.Call) mem.Fault {
		if c.Op == "get" {
			return mem.Broken
		}
		return mem.OK
	})
	wantStatus(t, f, 503, nil, "GET", main+"/files/secret-name.txt", nil, "")
	log := f.Log.String()
	if !strings.Contains(log, `"msg":"request failed","code":"unavailable","error":"`) {
		t.Errorf("log = %s, want the failed request", log)
	}
	for _, secret := range []string{"secret-name", "content-of", "/w/main/"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %q, want it omitted: %s", secret, log)
		}
	}
}
