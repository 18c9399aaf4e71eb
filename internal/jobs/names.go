package jobs

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

// MinServer is the oldest NATS server that Connect accepts.
const MinServer = "2.12.3"

// MaxData is the largest task data that Submit takes, in bytes.
const MaxData = 32 << 20

const maxObject = 64 << 20 // a result may be larger than the data; anything above this is not ours

// Streams, buckets and the words that subjects begin with.
const (
	streamTasks   = "TASKS"
	streamRecords = "KV_TASKSTATE"
	streamLogs    = "LOGS"
	streamDead    = "DLQ"
	streamDelayed = "DELAYED"
	streamJournal = "JOURNAL"
	streamHistory = "HISTORY"
	streamSpent   = "SPENT"
	streamAudit   = "AUDIT"
	streamAsked   = "ASKED"
	bucketWorkers = "workers"
	bucketObjects = "PAYLOADS"

	recordPrefix = "$KV.TASKSTATE."
	auditPrefix  = "audit."
)

var taskIDEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// TaskID names the task of an event: the same tenant, source and key (the event's idempotencykey,
// or else its id) always give the same 26 characters.
func TaskID(tenant, source, key string) string {
	h := sha256.New()
	for _, s := range []string{tenant, source, key} { // length first, so that no two triples look alike
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	return taskIDEncoding.EncodeToString(h.Sum(nil)[:16])
}

func taskSubject(pool, priority, tenant string) string {
	return strings.Join([]string{"tasks", pool, priority, tenant}, ".")
}

func recordSubject(tenant, id string) string { return recordPrefix + tenant + "." + id }

func isTaskID(s string) bool {
	if len(s) != 26 {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '2' || r > '7') })
}
