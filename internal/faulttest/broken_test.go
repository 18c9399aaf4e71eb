package faulttest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
)

// mutantNoIfMatch is the value of MUTANT for a worker whose object store ignores the condition of a swap.
const mutantNoIfMatch = "no-if-match"

// blindSwap swaps without a condition.
type blindSwap struct{ objects.Objects }

func (b blindSwap) CompareAndSwap(ctx context.Context, key, _ string, data []byte) (string, error) {
	for {
		current, err := b.Get(ctx, key, objects.GetOptions{})
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return "", err
		}
		etag, err := b.Objects.CompareAndSwap(ctx, key, current.ETag, data)
		if !errors.Is(err, state.ErrConflict) {
			return etag, err
		}
	}
}

// crashAfterCommit kills its process with SIGKILL right after the commit of a task.
type crashAfterCommit struct {
	objects.Objects
	task string
}

func (c crashAfterCommit) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	etag, err := c.Objects.CompareAndSwap(ctx, key, old, data)
	if err == nil && commits(key, data, c.task) {
		if err := signalSelf(syscall.SIGKILL); err != nil {
			return "", err
		}
		<-ctx.Done()
	}
	return etag, err
}

// stopBeforeCommit creates a file and stops its process with SIGSTOP right before the commit of a task.
type stopBeforeCommit struct {
	objects.Objects
	task, file string
}

func (s stopBeforeCommit) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	if commits(key, data, s.task) {
		// The process stops some time after the signal was sent.
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		if err := errors.Join(os.WriteFile(s.file, nil, 0o600), signalSelf(syscall.SIGSTOP)); err != nil {
			return "", err
		}
		<-continued
	}
	return s.Objects.CompareAndSwap(ctx, key, old, data)
}

// commits reports whether a swap writes a HEAD that names the task.
func commits(key string, data []byte, task string) bool {
	return strings.HasSuffix(key, "/HEAD") && bytes.Contains(data, []byte(`"`+task+`"`))
}

func signalSelf(sig os.Signal) error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	return self.Signal(sig)
}
