package jobs

import (
	"context"
	"errors"
	"net/http"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// IsTemporary reports whether an error may go away by itself: the server is unreachable, or its streams have no
// leader. Wrong credentials and settings are permanent errors.
func IsTemporary(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code == http.StatusServiceUnavailable && api.ErrorCode != jetstream.JSErrCodeJetStreamNotEnabled
	}
	for _, temporary := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrNoServers, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrStaleConnection, jetstream.ErrNoStreamResponse,
	} {
		if errors.Is(err, temporary) {
			return true
		}
	}
	return false
}
