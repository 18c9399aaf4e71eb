package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// denying is a store that refuses the credentials.
type denying struct{ objects.Objects }

func (denying) Get(context.Context, string, objects.GetOptions) (objects.Object, error) {
	return objects.Object{}, fmt.Errorf("get: %w: no such user", objects.ErrDenied)
}

// TestDeniedStore checks that wrong credentials of the object store count as wrong settings, which the error names with
// their origins.
func TestDeniedStore(t *testing.T) {
	t.Chdir(t.TempDir())
	file := config.FleetFile{S3: config.FleetS3{Bucket: "b", AccessKey: "a", SecretKey: "s"}}
	conf, err := config.Load(config.Source{Env: []string{"HOME=/nonexistent"}, Flags: file.Settings("--fleet f.json")})
	if err != nil {
		t.Fatal(err)
	}
	conf.S3.Endpoint = "http://ann:s3cret@store"
	p := &Process{Config: conf, Telemetry: &telemetry.Telemetry{Logger: slog.New(slog.DiscardHandler)}}
	err = p.AwaitStore(t.Context(), state.New(denying{}, state.Options{}))
	const want = "the object store http://ann:xxxxx@store refuses access to the bucket b: " +
		"check s3.access_key (flag --fleet f.json), s3.secret_key (flag --fleet f.json), the bucket's policy and " +
		"this host's clock: "
	if !errors.Is(err, ErrUsage) || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), "no such user") {
		t.Errorf("AwaitStore = %v, want an ErrUsage that begins with %q", err, want)
	}
}
