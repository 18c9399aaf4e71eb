package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// natsLog writes the server's log to slog, notices at level debug. It keeps the last fatal message, which is the only
// place where the server reports why it did not start.
type natsLog struct {
	log      *slog.Logger
	diskFull atomic.Bool // a write has failed, because the disk or a quota was full

	mu        sync.Mutex
	lastFatal error
}

func (l *natsLog) put(level slog.Level, format string, v []any) {
	ctx := context.Background()
	if l.log.Enabled(ctx, level) || level >= slog.LevelWarn { // warnings show a full disk, also if they are not logged
		line := format
		if len(v) > 0 { // without arguments, the format may be a client's text
			line = fmt.Sprintf(format, v...)
			if isDiskFull(line) {
				l.diskFull.Store(true)
			}
		}
		l.log.Log(ctx, level, "NATS server output", "line", withoutClientText(line))
	}
}

// connection matches a line about a connection: its address and id, the client's name, its account and user, and the
// message.
var connection = regexp.MustCompile(
	`(?s)^(\S+ - \w+:\d+)(?: - "(?:[^"\\]|\\.)*")?( - "(?:[^"\\]|\\.)*")?( - .*)$`)

// withoutClientText returns a line without the parts that a client has sent, such as the beginning of a malformed
// message. The server quotes them.
func withoutClientText(line string) string {
	m := connection.FindStringSubmatch(line)
	if m == nil {
		return line
	}
	where, message := m[1]+m[2], m[3]
	first, last := strings.IndexAny(message, `"'`), strings.LastIndexAny(message, `"'`)
	if first < 0 {
		return where + message
	}
	return where + message[:first] + `"…"` + message[last+1:]
}

// isDiskFull reports whether a line is about a write that has failed because the disk or a quota is full. Lines about
// connections may have text of clients, and never count.
func isDiskFull(line string) bool {
	full := strings.Contains(line, syscall.ENOSPC.Error()) || strings.Contains(line, syscall.EDQUOT.Error())
	return full && !connection.MatchString(line)
}

func (l *natsLog) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastFatal
}

func (l *natsLog) Noticef(format string, v ...any) { l.put(slog.LevelDebug, format, v) }
func (l *natsLog) Warnf(format string, v ...any)   { l.put(slog.LevelWarn, format, v) }
func (l *natsLog) Errorf(format string, v ...any)  { l.put(slog.LevelError, format, v) }
func (l *natsLog) Debugf(format string, v ...any)  { l.put(slog.LevelDebug, format, v) }
func (l *natsLog) Tracef(format string, v ...any)  { l.put(slog.LevelDebug, format, v) }

func (l *natsLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	l.lastFatal = fmt.Errorf(format, v...)
	l.mu.Unlock()
	l.put(slog.LevelError, format, v)
}
