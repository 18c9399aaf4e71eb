package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	logsKept    = 72 * time.Hour
	deadKept    = 30 * 24 * time.Hour
	journalKept = 7 * 24 * time.Hour
	auditKept   = 90 * 24 * time.Hour
	historyKept = 90 * 24 * time.Hour
	spentKept   = 40 * 24 * time.Hour
	logsPerTask = 10_000
	maxLogBytes = 4 << 30

	historyPerTenant = 500
	maxConsumers     = 100_000 // one per pool, priority and tenant with recent tasks; the server's default is 1,000
	dedupeWindow     = 2 * time.Minute
	presenceTTL      = 3 * presenceEvery
)

// Provision creates the streams and buckets, or updates them to this version's settings. It may be
// called by several processes at once and again at any time; nothing stored is lost. The server
// itself must run with sync_interval: always, or an acknowledged task can be lost with its power.
func (c *Client) Provision(ctx context.Context) error {
	for _, s := range c.streams() {
		if _, err := c.js.CreateOrUpdateStream(ctx, s); err != nil {
			return fmt.Errorf("provision stream %s: %w", s.Name, err)
		}
	}
	_, err := c.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: bucketWorkers, Description: "workers that are alive", Storage: jetstream.MemoryStorage,
		TTL: presenceTTL, History: 1, Replicas: c.opts.Storage.Replicas,
	})
	if err != nil {
		return fmt.Errorf("provision bucket %s: %w", bucketWorkers, err)
	}
	_, err = c.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket: bucketObjects, Description: "task data and results too large for a message",
		TTL: c.opts.Storage.Retention + 24*time.Hour, Storage: jetstream.FileStorage, Replicas: c.opts.Storage.Replicas,
	})
	if err != nil {
		return fmt.Errorf("provision bucket %s: %w", bucketObjects, err)
	}
	return c.provisionDelayed(ctx)
}

// streams are the streams, all on disk. All but LOGS have each message on disk before it is
// acknowledged (the server's sync_interval).
func (c *Client) streams() []jetstream.StreamConfig {
	all := []jetstream.StreamConfig{{
		Name: streamTasks, Description: "tasks to do, removed when settled",
		Subjects: []string{"tasks.*.*.*"}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: c.opts.Storage.MaxBacklog,
		MaxConsumers: maxConsumers, Duplicates: dedupeWindow, AllowDirect: true,
		// Rings the bell for whoever published it, after it is stored.
		RePublish: &jetstream.RePublish{Source: "tasks.>", Destination: "wake.>", HeadersOnly: true},
	}, {
		Name: streamRecords, Description: "one record per task, the truth about it",
		Subjects: []string{recordPrefix + ">"}, MaxMsgsPerSubject: c.opts.Storage.Revisions, Discard: jetstream.DiscardNew,
		AllowMsgTTL: true, AllowRollup: true, DenyDelete: true, AllowDirect: true,
		RePublish: &jetstream.RePublish{Source: recordPrefix + ">", Destination: "notify.>"},
	}, {
		Name: streamLogs, Description: "progress and output, not synced",
		Subjects: []string{"log.*.*"}, MaxAge: logsKept, MaxMsgsPerSubject: logsPerTask, MaxBytes: maxLogBytes,
		AllowDirect: true, PersistMode: jetstream.AsyncPersistMode,
	}, {
		Name: streamDead, Description: "tasks given up and events that could not become one",
		Subjects: []string{"dlq.*.*"}, MaxAge: deadKept, AllowDirect: true, Duplicates: dedupeWindow,
	}, {
		Name: streamJournal, Description: "tool calls of tasks, so that another run replays them",
		Subjects: []string{"journal.*.*.*"}, MaxAge: journalKept, MaxMsgsPerSubject: 1, AllowDirect: true,
	}, {
		Name: streamAudit, Description: "who called which tool, and how it ended",
		Subjects: []string{auditPrefix + "*"}, MaxAge: auditKept, DenyDelete: true, DenyPurge: true, AllowDirect: true,
	}, {
		Name: streamAsked, Description: "which tasks have tool calls that wait for approval; their records tell the rest",
		Subjects: []string{"asked.*.*"}, MaxAge: journalKept, MaxMsgsPerSubject: 1, AllowMsgTTL: true, AllowDirect: true,
	}, {
		Name: streamHistory, Description: "which tools the tasks of a tenant used, not synced",
		Subjects: []string{"history.*"}, MaxAge: historyKept, MaxMsgsPerSubject: historyPerTenant, MaxMsgSize: MaxHistoryEntry + 1024,
		AllowDirect: true, PersistMode: jetstream.AsyncPersistMode,
	}, {
		Name: streamSpent, Description: "tokens of language models, by tenant and day",
		Subjects: []string{"spent.*.*"}, MaxAge: spentKept, AllowMsgCounter: true, AllowDirect: true,
	}, {
		Name: streamDelayed, Description: "timers of tasks that are to run later",
		Subjects: []string{"delayed.*.*", "due.>"}, Retention: jetstream.WorkQueuePolicy,
		AllowMsgSchedules: true, AllowMsgTTL: true, AllowDirect: true, Duplicates: dedupeWindow,
	}}
	for i := range all {
		all[i].Storage = jetstream.FileStorage
		all[i].Replicas = c.opts.Storage.Replicas
	}
	return all
}

// provisionDelayed makes the consumer that every worker shares to move due tasks into their queue.
func (c *Client) provisionDelayed(ctx context.Context) error {
	_, err := c.js.CreateOrUpdateConsumer(ctx, streamDelayed, jetstream.ConsumerConfig{
		Durable: promoter, FilterSubject: "due.>", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: promoteAckWait, MaxDeliver: -1, MaxAckPending: 1000,
	})
	if err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
		return fmt.Errorf("provision consumer of %s: %w", streamDelayed, err)
	}
	return nil
}
