package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// natsLog writes the server's log to slog, notices at level debug. It keeps the last fatal message, which is the only
// place where the server reports why it did not start.
type natsLog struct {
	log *slog.Logger

	mu   sync.Mutex
	last error
}

func (l *natsLog) put(level slog.Level, format string, v []any) {
	ctx := context.Background()
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, "NATS server output", "line", fmt.Sprintf(format, v...))
	}
}

func (l *natsLog) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *natsLog) Noticef(format string, v ...any) { l.put(slog.LevelDebug, format, v) }
func (l *natsLog) Warnf(format string, v ...any)   { l.put(slog.LevelWarn, format, v) }
func (l *natsLog) Errorf(format string, v ...any)  { l.put(slog.LevelError, format, v) }
func (l *natsLog) Debugf(format string, v ...any)  { l.put(slog.LevelDebug, format, v) }
func (l *natsLog) Tracef(format string, v ...any)  { l.put(slog.LevelDebug, format, v) }

func (l *natsLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	l.last = fmt.Errorf(format, v...)
	l.mu.Unlock()
	l.put(slog.LevelError, format, v)
}
