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

// failing is a store that fails to read objects.
type failing struct {
	objects.Objects
	err error
}

func (f failing) Get(context.Context, string, objects.GetOptions) (objects.Object, error) {
	return objects.Object{}, fmt.Errorf("get: %w: as the store says", f.err)
}

// TestWrongStore checks that wrong credentials of the object store, or a wrong bucket, count as wrong settings, which
// the error names with their origins.
func TestWrongStore(t *testing.T) {
	t.Chdir(t.TempDir())
	file := config.FleetFile{S3: config.FleetS3{Bucket: "b", AccessKey: "a", SecretKey: "s"}}
	conf, err := config.Load(config.Source{Env: []string{"HOME=/nonexistent"}, Flags: file.Settings("--fleet f.json")})
	if err != nil {
		t.Fatal(err)
	}
	conf.S3.Endpoint = "http://ann:s3cret@store"
	p := &Process{Config: conf, Telemetry: &telemetry.Telemetry{Logger: slog.New(slog.DiscardHandler)}}
	const store = "the object store http://ann:xxxxx@store "
	for cause, want := range map[error]string{
		objects.ErrDenied: store + "refuses access to the bucket b: check s3.access_key (flag --fleet f.json), " +
			"s3.secret_key (flag --fleet f.json), the bucket's policy and this host's clock: ",
		objects.ErrNoBucket: store + "has no bucket b: create it, or check s3.bucket (flag --fleet f.json): ",
	} {
		err := p.AwaitStore(t.Context(), state.New(failing{err: cause}, state.Options{}))
		if !errors.Is(err, ErrUsage) || !strings.HasPrefix(err.Error(), want) ||
			!strings.Contains(err.Error(), "as the store says") {
			t.Errorf("AwaitStore = %v, want an ErrUsage that begins with %q", err, want)
		}
	}
}
