package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/logtest"
)

func TestOutageLogsChanges(t *testing.T) {
	var log logtest.Log
	o := outage{log: slog.New(slog.NewTextHandler(&log, nil)), failed: "broken", again: "mended"}
	ended, end := context.WithCancel(t.Context())
	end()
	o.report(t.Context(), nil)
	o.report(ended, context.Canceled)
	for range 2 {
		for range 3 {
			o.report(t.Context(), errors.New("no NATS"))
		}
		o.report(t.Context(), nil)
	}
	text := log.String()
	if n, m := strings.Count(text, "broken"), strings.Count(text, "mended"); n != 2 || m != 2 {
		t.Errorf("two outages are logged as %d failures and %d recoveries:\n%s", n, m, text)
	}
}

// RecordTasks logs an outage once, however often it tries.
func TestRecordTasksLogsOnce(t *testing.T) {
	var log logtest.Log
	f := newFleet(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if err := f.js.DeleteKeyValue(t.Context(), bucketCursors); err != nil {
		t.Fatal(err)
	}
	c := f.record(t)
	before := c.nc.Stats().OutMsgs
	eventually(t, "attempts", func() error { // each sends a request
		if sent := c.nc.Stats().OutMsgs - before; sent < 3 {
			return fmt.Errorf("%d requests sent", sent)
		}
		return nil
	})
	if n := strings.Count(log.String(), "creation of missing records failed"); n != 1 {
		t.Errorf("three attempts are logged %d times:\n%s", n, log.String())
	}
	if err := f.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.awaitRecord(t, f.publishTask(t, "default.normal", "1"))
	eventually(t, "recovery", func() error {
		if !strings.Contains(log.String(), "creation of missing records succeeded again") {
			return errors.New("not logged")
		}
		return nil
	})
}
