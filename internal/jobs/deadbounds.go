package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// An event that can never become a task is truncated to these limits in its dead letter.
const (
	maxDeadData   = 4 << 10  // bytes of the data
	maxDeadValue  = 1 << 10  // bytes of a header's name and value; longer headers are left out
	maxDeadHeader = 16 << 10 // bytes of all headers; above it, only those that isDeadHeader names are kept

	maxDeadReason = 8 << 10 // bytes of the encoded error of any dead letter

	deadCut = "Codefleet-Cut" // header of a truncated dead letter: the size of the whole data in bytes

	trimInterval = 16 // additions, on average, between two removals of old dead letters, deliveries or session entries
)

// invalid reports whether an event with this error can never become a task.
func invalid(code string) bool {
	switch code {
	case errcode.BadEvent, errcode.BadData, errcode.BadName, errcode.BadReplyTo, errcode.BadSubject, errcode.TooLarge,
		errcode.TenantMismatch:
		return true
	}
	return false
}

// truncateLetter truncates a dead letter to the limits for invalid events.
func truncateLetter(m *nats.Msg) {
	size := 0
	for name, values := range m.Header {
		for _, v := range values {
			if len(name)+len(v) > maxDeadValue && !isDeadHeader(name) {
				m.Header.Del(name)
				break
			}
			size += len(name) + len(v)
		}
	}
	if size > maxDeadHeader {
		for name := range m.Header {
			if !isDeadHeader(name) {
				m.Header.Del(name)
			}
		}
	}
	if len(m.Data) > maxDeadData {
		m.Header.Set(deadCut, strconv.Itoa(len(m.Data)))
		m.Data = m.Data[:maxDeadData]
	}
}

// moveDeadData moves a dead letter's data, unless it is small, to the object store, which limits each tenant's bytes.
// If the data alone exceeds the limit, or the letter is not an event or refers to data of others, the letter is
// truncated. Data that is in the object store already is copied to a name under which it may be removed to make room
// for newer objects.
func (c *Client) moveDeadData(ctx context.Context, tenant, task, end string, m *nats.Msg) error {
	ev, err := decodeNATS(m.Header, m.Data)
	if err != nil {
		truncateLetter(m)
		return nil //nolint:nilerr // the letter has the error of the task
	}
	data, ref := ev.Data(), extension(ev, "dataref")
	if ref == "" && len(m.Data) <= maxDeadData {
		return nil
	}
	if ref != "" {
		name, err := objectName(tenant, ref)
		if err != nil {
			truncateLetter(m)
			return nil //nolint:nilerr // as above
		}
		data, err = c.getObject(ctx, name)
		if objectMissing(err) {
			return nil // Redrive reports it
		}
		if err != nil {
			return err
		}
	}
	// Each letter needs a new name, because another process may be redriving an earlier one.
	name := fmt.Sprintf("%s/%s/dead-%s", tenant, task, end)
	err = c.keepObject(ctx, tenant, name, data)
	if errors.Is(err, ErrStorageFull) {
		truncateLetter(m)
		m.Header.Set(deadCut, strconv.Itoa(len(data)))
		return nil
	}
	if err != nil {
		return err
	}
	ev.DataEncoded = nil
	ev.SetExtension("dataref", objectRef(name))
	header, _, err := encodeNATS(ev)
	if err != nil {
		return err
	}
	for name, values := range m.Header { // keep the queue's headers, such as the number of runs
		if key := strings.ToLower(name); !strings.HasPrefix(key, cePrefix) && key != "content-type" {
			header[name] = values
		}
	}
	m.Header, m.Data = header, nil
	return nil
}

func isDeadHeader(name string) bool {
	return name == deadError || name == deadOrigin || name == deadTask
}

// trimDeadLetters removes the tenant's oldest dead letters above the limit. It does so on one call in trimInterval, on
// average, so a tenant may exceed the limit for a while.
func (c *Client) trimDeadLetters(ctx context.Context, tenant string) {
	// The tenant of a message on an invalid subject may be any text, such as a wildcard.
	if schemas.CheckName("tenant", tenant) != nil || rand.N(trimInterval) != 0 { //nolint:gosec // not a secret
		return
	}
	removed, err := c.purge(ctx, streamDead, deadSubject(tenant, "*"), c.opts.Storage.DeadLetters)
	if err != nil {
		c.opts.Log.WarnContext(ctx, "old dead letters not removed", "tenant", tenant, "error", err)
	}
	if removed > 0 {
		c.tel.deadRemoved.Add(ctx, removed)
		c.opts.Log.InfoContext(ctx, "old dead letters removed", "tenant", tenant, "removed", removed)
	}
}

// purge removes the oldest messages on the subjects that match a filter, until keep are left. It returns how many it
// has removed.
func (c *Client) purge(ctx context.Context, stream, filter string, keep int64) (int64, error) {
	query, err := json.Marshal(map[string]any{"filter": filter, "keep": keep})
	if err != nil {
		return 0, err
	}
	m, err := c.request(ctx, "$JS.API.STREAM.PURGE."+stream, query)
	if err != nil {
		return 0, err
	}
	var response struct {
		Error  *jetstream.APIError `json:"error"`
		Purged int64               `json:"purged"`
	}
	if err := json.Unmarshal(m.Data, &response); err != nil {
		return 0, err
	}
	if response.Error != nil {
		return 0, response.Error
	}
	return response.Purged, nil
}
