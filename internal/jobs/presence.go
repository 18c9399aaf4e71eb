package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// Workers returns the workers that published their presence within the last nine seconds, sorted by name.
func (c *Client) Workers(ctx context.Context) ([]schemas.Worker, error) {
	kv, err := c.js.KeyValue(ctx, bucketWorkers)
	if errors.Is(err, jetstream.ErrBucketNotFound) { // lost in a restart of the server; no worker has run since
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	entries, err := keysOf(ctx, kv, ">")
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	all := make([]schemas.Worker, len(entries))
	for i, e := range entries {
		if err := json.Unmarshal(e.Value(), &all[i]); err != nil {
			return nil, fmt.Errorf("list workers: %w", err)
		}
	}
	slices.SortFunc(all, func(a, b schemas.Worker) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// provisionWorkers creates the bucket of the workers' presence, which is kept in memory.
func (c *Client) provisionWorkers(ctx context.Context, replicas int) error {
	return c.provisionBucket(ctx, jetstream.KeyValueConfig{
		Bucket: bucketWorkers, Description: "live workers", Storage: jetstream.MemoryStorage, TTL: presenceTTL,
		History: 1, Replicas: replicas,
	})
}
