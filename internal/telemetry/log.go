package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/term"
)

// LogOptions configure the log.
type LogOptions struct {
	Level  string    // DEBUG, INFO, WARNING or ERROR, in any case; default INFO
	Format string    // text, json or auto: text on a terminal, or else json; default auto
	Output io.Writer // nil discards the log
	File   string    // if set, appended to instead of Output; the file (mode 0600) and its directory are created

	Hide func(string) string // replaces private values in messages and attributes; may be nil
}

// handler returns the handler, and the file to close at shutdown, which is nil if the log is not a file.
func (o LogOptions) handler() (slog.Handler, *os.File, error) {
	level, err := parseLevel(o.Level)
	if err != nil {
		return nil, nil, err
	}
	out, file := o.Output, (*os.File)(nil)
	if o.File != "" {
		if err := os.MkdirAll(filepath.Dir(o.File), 0o700); err != nil {
			return nil, nil, fmt.Errorf("log file: %w", err)
		}
		if file, err = os.OpenFile(o.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			return nil, nil, fmt.Errorf("log file: %w", err)
		}
		out = file
	}
	if out == nil {
		return slog.DiscardHandler, nil, nil
	}
	options := &slog.HandlerOptions{Level: level}
	if o.Hide != nil {
		options.ReplaceAttr = hiding(o.Hide)
	}
	if o.Format == "text" || o.Format != "json" && isTerminal(out) {
		return slog.NewTextHandler(out, options), file, nil
	}
	return slog.NewJSONHandler(out, options), file, nil
}

// hiding returns a function for slog.HandlerOptions that applies hide to the text of each attribute and message.
func hiding(hide func(string) string) func([]string, slog.Attr) slog.Attr {
	return func(_ []string, a slog.Attr) slog.Attr {
		kind := a.Value.Kind()
		if _, level := a.Value.Any().(slog.Level); level || kind != slog.KindString && kind != slog.KindAny {
			return a
		}
		shown := a.Value.String()
		if hidden := hide(shown); hidden != shown {
			a.Value = slog.StringValue(hidden)
		}
		return a
	}
}

func parseLevel(s string) (slog.Level, error) {
	switch strings.ToUpper(s) {
	case "DEBUG":
		return slog.LevelDebug, nil
	case "", "INFO":
		return slog.LevelInfo, nil
	case "WARN", "WARNING":
		return slog.LevelWarn, nil
	case "ERROR", "CRITICAL":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("log level %q is not one of DEBUG, INFO, WARNING, ERROR", s)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// Traced wraps a handler: records that are logged with a span's context get its trace_id and span_id.
func Traced(h slog.Handler) slog.Handler { return traced{h} }

type traced struct{ next slog.Handler }

func (h traced) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r = r.Clone() // the record's attributes may be shared
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs and WithGroup wrap the result, so that loggers from With add the ids too.
func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.next.WithAttrs(attrs)} }

func (h traced) WithGroup(name string) slog.Handler { return traced{h.next.WithGroup(name)} }
