package client

import (
	"context"
	"errors"
)

func newNATSDoor(ctx context.Context, o Options) (door, error) {
	return nil, errors.New("nats: not yet")
}
