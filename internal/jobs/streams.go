package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// Streams and buckets, and the subjects of their messages. Those of events, webhooks, workflows and HEADs are in the
// files of these.
const (
	streamTasks     = "TASKS"        // tasks.<pool>.<priority>.<tenant>
	streamRecords   = "KV_TASKSTATE" // $KV.TASKSTATE.<tenant>.<task>
	streamLogs      = "LOGS"         // log.<tenant>.<task>
	streamDead      = "DLQ"          // dlq.<tenant>.<task or sequence>
	streamDelayed   = "DELAYED"      // delayed.<tenant>.<task>-<run>, due.<pool>.<priority>.<tenant>.<task>
	streamJournal   = "JOURNAL"      // journal.<tenant>.<task>.<key>
	streamHistory   = "HISTORY"      // history.<tenant>
	streamSpent     = "SPENT"        // spent.<tenant>.<day>, usage.<tenant>.<day>.<what>
	streamAudit     = "AUDIT"        // audit.<tenant>
	streamAsked     = "ASKED"        // asked.<tenant>.<task>
	streamRates     = "RATES"        // rate.<tenant>.<what>.<period>
	streamSessions  = "SESSIONS"     // sessions.<tenant>.<session>.task, and …checkpoint
	streamSubmitted = "SUBMITTED"    // submitted.<tenant>.<task>
	bucketWorkers   = "workers"
	bucketObjects   = "PAYLOADS"
	bucketCursors   = "CURSORS"
	bucketControls  = "CONTROLS"
	bucketTokens    = "TOKENS"

	recordPrefix = "$KV.TASKSTATE."
	auditPrefix  = "audit."
	notifyPrefix = "notify." // notify.<tenant>.<task>: the server republishes every record there
	wakePrefix   = "wake."   // wake.<lane>: the server republishes the headers of every task there
)

const (
	logsRetention    = 72 * time.Hour
	deadRetention    = 30 * 24 * time.Hour
	journalRetention = 7 * 24 * time.Hour
	auditRetention   = 90 * 24 * time.Hour
	historyRetention = 90 * 24 * time.Hour
	spentRetention   = 400 * 24 * time.Hour
	ratesRetention   = 2 * time.Hour   // two of the longest periods
	presenceTTL      = 9 * time.Second // a worker publishes its presence three times in it
	logsPerTask      = 10_000
	maxLogBytes      = 4 << 30
	historyPerTenant = 500
	maxConsumers     = 100_000 // one per lane with recent tasks; the server's default is 1,000
	dedupeWindow     = 2 * time.Minute

	promoter       = "promote" // the consumer of due tasks
	promoteAckWait = 5 * time.Second
)

func recordSubject(tenant, id string) string { return recordPrefix + tenant + "." + id }
func notifySubject(tenant, id string) string { return notifyPrefix + tenant + "." + id }
func logSubject(tenant, id string) string    { return "log." + tenant + "." + id }
func deadSubject(tenant, key string) string  { return "dlq." + tenant + "." + key }

const delayedPrefix = "delayed."

// delayedSubject returns the subject of the timer that ends the wait after a run, or before the first one if run is 0.
// Each wait has its own, because the server keeps one timer for each subject: that of an earlier run, whose worker was
// stopped, must not replace a later one.
func delayedSubject(tenant, id string, run int) string {
	return delayedPrefix + tenant + "." + id + "-" + strconv.Itoa(run)
}

// Provision creates the streams and buckets, or updates their settings to those of this version. It keeps stored
// messages, and does not lower a number of replicas. Several processes may call it at once and at any time. The server
// must run with sync_interval: always, or a power failure can lose acknowledged tasks.
func (c *Client) Provision(ctx context.Context) error {
	replicas, err := c.replicas(ctx)
	if err != nil {
		return err
	}
	if err := c.provisionCursors(ctx, replicas); err != nil {
		return err
	}
	if err := c.provisionWorkers(ctx, replicas); err != nil {
		return err
	}
	if err := c.provisionControls(ctx, replicas); err != nil {
		return err
	}
	if err := c.provisionTokens(ctx, replicas); err != nil {
		return err
	}
	if err := c.provisionAutomations(ctx, replicas); err != nil {
		return err
	}
	if err := c.provisionWorkflows(ctx, replicas); err != nil {
		return err
	}
	for _, s := range c.streams(replicas) {
		if s.Name == streamTasks {
			if s.MaxMsgsPerSubject, err = c.safeBacklog(ctx); err != nil {
				return fmt.Errorf("provision stream %s: %w", s.Name, err)
			}
		}
		if err := c.provisionStream(ctx, s); err != nil {
			return err
		}
	}
	current, err := c.currentReplicas(ctx, "OBJ_"+bucketObjects)
	replicas = max(replicas, current)
	if err == nil {
		_, err = c.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: bucketObjects, Description: "task data and results that are too large for a message",
			TTL: c.opts.Storage.Retention + 24*time.Hour, Storage: jetstream.FileStorage,
			Replicas: replicas,
		})
		err = c.keep(ctx, "OBJ_"+bucketObjects, err)
	}
	if err != nil {
		return provisionError("bucket "+bucketObjects, replicas, err)
	}
	return c.provisionDelayed(ctx)
}

// Ready returns an error if the queue cannot store tasks and records now, because the server or the leader of their
// streams does not respond.
func (c *Client) Ready(ctx context.Context) error {
	for _, name := range []string{streamTasks, streamRecords} {
		if _, err := c.js.Stream(ctx, name); err != nil {
			return fmt.Errorf("read the state of %s: %w", name, err)
		}
	}
	return nil
}

// streams returns the configuration of all streams. They are kept on disk. With one replica, LOGS, HISTORY and
// SUBMITTED acknowledge a message before it is on disk, the others after (see sync_interval at Provision).
func (c *Client) streams(replicas int) []jetstream.StreamConfig {
	all := []jetstream.StreamConfig{{
		Name: streamTasks, Description: "tasks to run, removed when completed",
		Subjects: []string{"tasks.*.*.*"}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: c.opts.Storage.MaxBacklog,
		MaxConsumers: maxConsumers, Duplicates: dedupeWindow, AllowDirect: true,
		// A republished message wakes the workers once the task is stored.
		RePublish: &jetstream.RePublish{Source: "tasks.>", Destination: wakePrefix + ">", HeadersOnly: true},
	}, {
		Name: streamRecords, Description: "one record per task",
		Subjects: []string{recordPrefix + ">"}, MaxMsgsPerSubject: c.opts.Storage.Revisions,
		Discard: jetstream.DiscardNew, AllowMsgTTL: true, AllowRollup: true, DenyDelete: true, AllowDirect: true,
		RePublish: &jetstream.RePublish{Source: recordPrefix + ">", Destination: notifyPrefix + ">"},
	}, {
		Name: streamLogs, Description: "progress and output, not synced",
		Subjects: []string{"log.*.*"}, MaxAge: logsRetention, MaxMsgsPerSubject: logsPerTask,
		MaxBytes: maxLogBytes, AllowDirect: true, PersistMode: jetstream.AsyncPersistMode,
	}, {
		Name: streamDead, Description: "tasks that ended dead and events that were refused",
		Subjects: []string{"dlq.*.*"}, MaxAge: deadRetention, AllowDirect: true, Duplicates: dedupeWindow,
	}, {
		Name: streamJournal, Description: "tool calls of tasks, for later runs to replay",
		Subjects: []string{"journal.*.*.*"}, MaxAge: journalRetention, MaxMsgsPerSubject: 1, AllowDirect: true,
	}, {
		Name: streamAudit, Description: "tool calls and their outcomes",
		Subjects: []string{auditPrefix + "*"}, MaxAge: auditRetention, DenyDelete: true,
		DenyPurge: true, AllowDirect: true,
	}, {
		Name: streamAsked, Description: "tasks with tool calls that wait for approval; the calls are in their records",
		Subjects: []string{"asked.*.*"}, MaxAge: journalRetention, MaxMsgsPerSubject: 1,
		AllowMsgTTL: true, AllowDirect: true,
	}, {
		Name: streamHistory, Description: "tools that the tasks of a tenant used, not synced",
		Subjects: []string{"history.*"}, MaxAge: historyRetention, MaxMsgsPerSubject: historyPerTenant,
		MaxMsgSize: MaxHistoryItem + 1024, AllowDirect: true, PersistMode: jetstream.AsyncPersistMode,
	}, {
		Name: streamSessions, Description: "logs of sessions: tasks and checkpoints",
		Subjects: []string{"sessions.*.*.*"}, MaxAge: sessionsRetention, MaxMsgsPerSubject: schemas.MaxSessionTasks,
		MaxMsgSize: maxSessionMessage, AllowDirect: true, Duplicates: dedupeWindow,
	}, {
		Name: streamSubmitted, Description: "events of tasks that have ended, to submit them again; not synced",
		Subjects: []string{"submitted.*.*"}, MaxAge: c.opts.Storage.Retention, MaxMsgsPerSubject: 1,
		MaxBytes: maxSubmittedBytes, AllowDirect: true, PersistMode: jetstream.AsyncPersistMode,
	}, {
		Name: streamSpent, Description: "what tenants have used by day; spent: tokens against daily_tokens",
		Subjects: []string{"spent.*.*", "usage.*.*.*"}, MaxAge: spentRetention, MaxMsgsPerSubject: 1,
		AllowMsgCounter: true, AllowDirect: true,
	}, {
		Name: streamRates, Description: "what tenants have used of their rates in the latest periods",
		Subjects: []string{"rate.*.*.*"}, MaxAge: ratesRetention, MaxMsgsPerSubject: 1,
		AllowMsgCounter: true, AllowDirect: true,
	}, {
		Name: streamEvents, Description: "events for triggers, removed when they were matched",
		Subjects: []string{eventsPrefix + "*"}, Retention: jetstream.WorkQueuePolicy, MaxAge: eventsRetention,
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: maxEvents,
	}, {
		Name: streamDeliveries, Description: "deliveries to webhooks, as earlier versions store them",
		Subjects: []string{deliverPrefix + "*.*"}, Retention: jetstream.WorkQueuePolicy, MaxAge: DeliveryTime,
		MaxMsgsPerSubject: maxDeliveries, Duplicates: dedupeWindow,
	}, {
		Name: streamOrdered, Description: "deliveries to webhooks, events with partition keys, and permits",
		Subjects:  []string{orderedEvents + "*", orderedWaiting + "*.*.*", orderedPermits + "*.*.*"},
		Retention: jetstream.WorkQueuePolicy, MaxMsgsPerSubject: maxDeliveries + orderedRoom, AllowMsgTTL: true,
		Duplicates: dedupeWindow, // without AllowDirect: the leader knows which delivery is the first
	}, {
		Name: streamDelayed, Description: "timers of tasks that run later",
		Subjects: []string{"delayed.*.*", "due.>"}, Retention: jetstream.WorkQueuePolicy,
		AllowMsgSchedules: true, AllowMsgTTL: true, AllowDirect: true, Duplicates: dedupeWindow,
	}}
	for i := range all {
		all[i].Replicas = replicas
	}
	return all
}

// provisionDelayed creates the consumer with which all workers move due tasks to their lanes.
func (c *Client) provisionDelayed(ctx context.Context) error {
	_, err := c.js.CreateOrUpdateConsumer(ctx, streamDelayed, jetstream.ConsumerConfig{
		Durable: promoter, FilterSubject: "due.>", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: promoteAckWait, MaxDeliver: -1,
		MaxAckPending: -1, // due messages of a full lane are in flight, and must not hold up others
	})
	if err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
		return fmt.Errorf("provision consumer of %s: %w", streamDelayed, err)
	}
	return nil
}
