// Package natsheads is the head mode that stores HEADs in a key-value bucket of the queue's NATS server, for object
// stores that do not honour conditional writes.
package natsheads

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/heads"
)

// New returns the HEADs in the bucket that connect opens. Requests call connect until it succeeds once. The connection
// lasts as long as the process.
func New(connect func() (*jobs.HeadBucket, error)) heads.Store { return &store{connect: connect} }

type store struct {
	connect func() (*jobs.HeadBucket, error)

	mu     sync.Mutex
	bucket *jobs.HeadBucket // nil until connect has succeeded
}

// open returns the bucket. It calls connect unless an earlier call has succeeded.
func (s *store) open() (*jobs.HeadBucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bucket != nil {
		return s.bucket, nil
	}
	var err error
	s.bucket, err = s.connect()
	return s.bucket, temporary(err)
}

// Get implements heads.Store.
func (s *store) Get(ctx context.Context, key, version string) (objects.Object, error) {
	bucket, err := s.open()
	if err != nil {
		return objects.Object{}, err
	}
	h, err := bucket.Get(ctx, key)
	switch {
	case errors.Is(err, jobs.ErrHeadNotFound):
		return objects.Object{}, fmt.Errorf("%w: %w", objects.ErrNotFound, err)
	case err != nil:
		return objects.Object{}, temporary(err)
	case version == formatVersion(h.Revision):
		return objects.Object{}, fmt.Errorf("get %s: %w", key, objects.ErrNotModified)
	}
	return objects.Object{Data: h.Data, ETag: formatVersion(h.Revision), Modified: h.Modified}, nil
}

// CompareAndSwap implements heads.Store.
func (s *store) CompareAndSwap(ctx context.Context, key, version string, data []byte) (string, error) {
	bucket, err := s.open()
	if err != nil {
		return "", err
	}
	revision := uint64(0)
	if version != "" {
		if revision, err = strconv.ParseUint(version, 10, 64); err != nil || revision == 0 {
			return "", fmt.Errorf("swap %s: version %q: %w", key, version, objects.ErrConflict)
		}
	}
	revision, err = bucket.Swap(ctx, key, revision, data)
	if errors.Is(err, jobs.ErrHeadConflict) {
		return "", fmt.Errorf("%w: %w", objects.ErrConflict, err)
	}
	if err != nil {
		return "", temporary(err)
	}
	return formatVersion(revision), nil
}

// List implements heads.Store.
func (s *store) List(ctx context.Context, prefix string) ([]objects.ObjectInfo, error) {
	bucket, err := s.open()
	if err != nil {
		return nil, err
	}
	all, err := bucket.List(ctx, prefix)
	if err != nil {
		return nil, temporary(err)
	}
	out := make([]objects.ObjectInfo, len(all))
	for i, h := range all {
		out[i] = objects.ObjectInfo{Key: h.Key, Size: int64(len(h.Data)), Modified: h.Modified}
	}
	return out, nil
}

// Delete implements heads.Store.
func (s *store) Delete(ctx context.Context, key string) error {
	bucket, err := s.open()
	if err != nil {
		return err
	}
	return temporary(bucket.Delete(ctx, key))
}

func formatVersion(revision uint64) string { return strconv.FormatUint(revision, 10) }

// temporary marks every error of the queue as one that may be retried.
func temporary(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", objects.ErrTemporary, err)
}
