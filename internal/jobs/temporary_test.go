package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/jobs"
)

func TestIsTemporary(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{context.DeadlineExceeded, true},
		{nats.ErrNoResponders, true},
		{&jetstream.APIError{Code: 503, ErrorCode: 10008}, true},
		{&jetstream.APIError{Code: 503, ErrorCode: jetstream.JSErrCodeJetStreamNotEnabled}, false},
		{&jetstream.APIError{Code: 400, ErrorCode: 10052, Description: "invalid configuration"}, false},
		{nats.ErrAuthorization, false},
		{nats.ErrConnectionClosed, false},
		{context.Canceled, false},
		{errors.New("bad setting"), false},
	} {
		if got := jobs.IsTemporary(fmt.Errorf("provision stream TASKS: %w", c.err)); got != c.want {
			t.Errorf("IsTemporary(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}
