package jobs

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/schemas"
)

// lane is the queue of one pool, priority and tenant. It has a durable consumer, whose MaxAckPending is the
// number of tasks that the tenant may run at once.
type lane struct{ pool, priority, tenant string }

var priorities = []string{"high", "normal", "low"} // the order in which they get slots

func (l lane) subject() string {
	return strings.Join([]string{"tasks", l.pool, l.priority, l.tenant}, ".")
}
func (l lane) consumer() string { return l.pool + "_" + l.priority + "_" + l.tenant }

// laneOf parses a subject <any>.<pool>.<priority>.<tenant>.
func laneOf(subject string) (lane, bool) {
	t := strings.Split(subject, ".")
	if len(t) != 4 {
		return lane{}, false
	}
	l := lane{pool: t[1], priority: t[2], tenant: t[3]}
	ok := schemas.CheckPool(l.pool) == nil && schemas.CheckName("tenant", l.tenant) == nil
	return l, ok && slices.Contains(priorities, l.priority)
}

// byLane returns the message counts of subjects by lane, and the subjects that do not name a lane, sorted.
func byLane(subjects map[string]int) (counts map[lane]int, invalid []string) {
	counts = make(map[lane]int, len(subjects))
	for subject, n := range subjects {
		if l, ok := laneOf(subject); ok {
			counts[l] = n
		} else {
			invalid = append(invalid, subject)
		}
	}
	slices.Sort(invalid)
	return counts, invalid
}

var subjectEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// TaskID returns the id of an event's task, 26 characters that are a hash of the tenant, the source and the key
// (the event's idempotencykey, or else its id).
func TaskID(tenant, source, key string) string {
	h := sha256.New()
	for _, s := range []string{tenant, source, key} { // each with its length, so that no two triples collide
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	return subjectEncoding.EncodeToString(h.Sum(nil)[:16])
}
