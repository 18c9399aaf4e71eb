package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/text"
)

// Data that is too large for a message is kept in NATS's object store under <tenant>/<task>/<name>. The message
// holds a URI instead.

const (
	objectScheme = "nats-object:" + bucketObjects + "/"
	dataName     = "/data"  // suffix of the names of unfinished tasks' data
	maxObject    = 64 << 20 // bytes; the fleet stores no larger objects
	// maxObjectName is longer than any name of the fleet, in bytes. The server closes a connection that asks for a
	// subject of more than 4 KiB, and the name is part of a subject.
	maxObjectName = 512
)

func objectRef(name string) string { return objectScheme + name }

// objectName returns the object name of a reference. The object must belong to the tenant, because an event
// that a tenant published could refer to another tenant's object.
func objectName(tenant, ref string) (string, error) {
	name, ok := strings.CutPrefix(ref, objectScheme)
	if !ok || !strings.HasPrefix(name, tenant+"/") || len(name) > maxObjectName {
		return "", fmt.Errorf("reference %q does not point to data of tenant %s in this fleet's store",
			text.Truncate(ref, maxText), tenant)
	}
	return name, nil
}

// keepObject stores an object that may be removed later to make room, and removes the tenant's oldest such objects if
// necessary; see makeRoom.
func (c *Client) keepObject(ctx context.Context, tenant, name string, data []byte) error {
	if err := c.makeRoom(ctx, tenant, int64(len(data))); err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	return c.putObject(ctx, name, data)
}

func (c *Client) putObject(ctx context.Context, name string, data []byte) error {
	store, err := c.js.ObjectStore(ctx, bucketObjects)
	if err == nil {
		_, err = store.PutBytes(ctx, name, data)
	}
	if err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	return nil
}

func (c *Client) getObject(ctx context.Context, name string) (data []byte, err error) {
	store, err := c.js.ObjectStore(ctx, bucketObjects)
	var info *jetstream.ObjectInfo
	if err == nil {
		info, err = store.GetInfo(ctx, name)
	}
	if err == nil && info.Size > maxObject {
		err = fmt.Errorf("it is %d bytes; the limit is %d", info.Size, maxObject)
	}
	if err == nil {
		data, err = readObject(ctx, store, name, info.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

const (
	readAttempts = 4
	readWait     = time.Second // for the first attempt, plus readWait per readRate bytes; then twice as long each time
	readRate     = 4 << 20     // bytes
)

// readObject reads an object that has size bytes. If the object is removed at the same time, GetBytes waits for its
// content until the context ends. So the first attempt has little time; the next one finds that the object is missing.
func readObject(ctx context.Context, store jetstream.ObjectStore, name string, size uint64) (data []byte, err error) {
	wait := readWait * time.Duration(1+size/readRate)
	for range readAttempts {
		attempt, cancel := context.WithTimeout(ctx, wait)
		data, err = store.GetBytes(attempt, name)
		timedOut := attempt.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded)
		cancel()
		if err == nil || !timedOut || ctx.Err() != nil {
			return data, err
		}
		wait *= 2
	}
	return nil, err
}

func objectMissing(err error) bool { return errors.Is(err, jetstream.ErrObjectNotFound) }
