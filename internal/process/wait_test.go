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

// TestDeniedStore checks that wrong credentials of the object store count as wrong settings, which the error names.
func TestDeniedStore(t *testing.T) {
	conf := config.Default()
	conf.S3.Endpoint = "http://ann:s3cret@store"
	p := &Process{Config: conf, Telemetry: &telemetry.Telemetry{Logger: slog.New(slog.DiscardHandler)}}
	err := p.AwaitStore(t.Context(), state.New(denying{}, state.Options{}))
	const want = "the object store http://ann:xxxxx@store refuses access to the bucket codefleet: " +
		"check s3.access_key and s3.secret_key: "
	if !errors.Is(err, ErrUsage) || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), "no such user") {
		t.Errorf("AwaitStore = %v, want an ErrUsage that begins with %q", err, want)
	}
}
