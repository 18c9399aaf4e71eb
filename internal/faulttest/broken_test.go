package faulttest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/codefleet/codefleet/internal/state"
)

// mutantNoIfMatch is a worker whose object store ignores the condition of a swap.
const mutantNoIfMatch = "no-if-match"

// blindSwap swaps whatever is there by now.
type blindSwap struct{ state.Objects }

func (b blindSwap) CompareAndSwap(ctx context.Context, key, _ string, data []byte) (string, error) {
	for {
		now, err := b.Get(ctx, key, state.GetOptions{})
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return "", err
		}
		etag, err := b.Objects.CompareAndSwap(ctx, key, now.ETag, data)
		if !errors.Is(err, state.ErrConflict) {
			return etag, err
		}
	}
}

// crashAfterCommit kills its process, as kill -9 does, when HEAD first names a task.
type crashAfterCommit struct {
	state.Objects
	task string
}

func (c crashAfterCommit) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	etag, err := c.Objects.CompareAndSwap(ctx, key, old, data)
	if err == nil && strings.HasSuffix(key, "/HEAD") && bytes.Contains(data, []byte(`"`+c.task+`"`)) {
		self, findErr := os.FindProcess(os.Getpid())
		if err := errors.Join(findErr, self.Kill()); err != nil {
			return "", fmt.Errorf("crash after the commit: %w", err)
		}
		<-ctx.Done()
	}
	return etag, err
}
