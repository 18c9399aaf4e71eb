package workermain_test

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/logtest"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/plugin/workermain"
	"github.com/codefleet/codefleet/schemas"
)

// relayed is a fleet whose queue and object store its workers reach through relays.
type relayed struct {
	fleet
	nats, s3 *faulttest.Relay
}

func startRelayed(t *testing.T) relayed {
	t.Helper()
	f := startFleet(t)
	file, err := config.ReadFleetFile(f.file)
	if err != nil {
		t.Fatal(err)
	}
	r := relayed{fleet: f, nats: relayTo(t, file.NATS.URL), s3: relayTo(t, file.S3.Endpoint)}
	file.NATS.URL, file.S3.Endpoint = r.nats.Through(file.NATS.URL), r.s3.Through(file.S3.Endpoint)
	r.file = filepath.Join(t.TempDir(), "fleet.json")
	if err := file.Write(r.file); err != nil {
		t.Fatal(err)
	}
	return r
}

func relayTo(t *testing.T, address string) *faulttest.Relay {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return faulttest.StartRelay(t, u.Host)
}

// TestDrainIsKept checks that a worker ends within a second of worker.drain, whatever the object store and the queue
// do, and that the task of an interrupted run is requeued at once if the queue responds.
func TestDrainIsKept(t *testing.T) {
	const endless = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
	const writes = "open('a.txt', 'w').write('a')"
	const commit = "PUT /codefleet/default/w/"
	const drain = time.Second
	for name, c := range map[string]struct {
		code string
		on   string // the fault begins when the worker sends this to the object store, or else while the program runs
		mode faulttest.Mode
		of   func(relayed) *faulttest.Relay // the relay that has the fault
	}{
		"store hangs while the program runs":   {endless, "", faulttest.Hang, store},
		"store hangs during the checkout":      {writes, "/w/main/", faulttest.Hang, store},
		"store hangs during the commit":        {writes, commit, faulttest.Hang, store},
		"store refuses during the commit":      {writes, commit, faulttest.Refuse, store},
		"store is slow during the commit":      {writes, commit, faulttest.Slow, store},
		"queue hangs while the program runs":   {endless, "", faulttest.Hang, queue},
		"queue refuses while the program runs": {endless, "", faulttest.Refuse, queue},
	} {
		t.Run(name, func(t *testing.T) {
			f := startRelayed(t)
			w := f.startWorker(t, "CODEFLEET_WORKER_DRAIN="+drain.String(), "CODEFLEET_WORKER_SLOTS=1")
			w.await(t, "worker ready")
			struck := c.of(f).SetOn(c.on, c.mode)
			rec, err := f.client.Submit(t.Context(), client.Submission{Task: client.Task{Code: c.code}})
			if err != nil {
				t.Fatal(err)
			}
			if c.on != "" {
				<-struck
			} else {
				f.awaitOutput(t, rec.TaskID)
				c.of(f).Set(c.mode)
			}
			start, endLag := time.Now(), faulttest.MeasureLag()
			w.stop()
			if err := <-w.ended; err != nil {
				t.Errorf("Run() = %v, want nil", err)
			}
			took, lag := time.Since(start), endLag()
			t.Logf("ended %v after the stop signal, %v of it without a processor", took, lag)
			if limit := drain + process.ExitTime; took-lag > limit {
				t.Errorf("Run() ended %v after the stop signal, %v of it without a processor, want at most %v\n%s",
					took, lag, limit, w.log.String())
			}
			if c.of(f) != f.s3 {
				return // the task stays running until its claim expires
			}
			rec, err = f.client.Get(t.Context(), rec.TaskID)
			if err != nil || rec.Status != schemas.RetryWait {
				t.Errorf("Get() = %s, %v, want %s\n%s", rec.Status, err, schemas.RetryWait, w.log.String())
			}
			// On a busy host, this process may remove them only after Run has returned.
			await(t, "no mounts", func() bool {
				left, err := hostdir.Mounts(f.data)
				if err != nil {
					t.Fatal(err)
				}
				return len(left) == 0
			})
		})
	}
}

func store(f relayed) *faulttest.Relay { return f.s3 }
func queue(f relayed) *faulttest.Relay { return f.nats }

// awaitOutput waits until the task's program has written something.
func (f fleet) awaitOutput(t *testing.T, id string) {
	t.Helper()
	written := errors.New("written")
	_, err := f.client.Watch(t.Context(), id, 0, func(e client.Event) error {
		if e.Stream == "stdout" {
			return written
		}
		return nil
	})
	if !errors.Is(err, written) {
		t.Fatalf("Watch() = %v, want output of the program", err)
	}
}

// worker is a worker that runs in this process.
type worker struct {
	stop  context.CancelFunc
	ended chan error   // receives the result of Run
	log   *logtest.Log // what the worker has logged so far
}

// startWorker starts a worker in this process, with additional environment variables.
func (f fleet) startWorker(t *testing.T, env ...string) worker {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := worker{stop, make(chan error, 1), &logtest.Log{}}
	var running sync.WaitGroup
	running.Go(func() {
		w.ended <- workermain.Run(ctx, workermain.Config{
			Args: []string{"--fleet", f.file}, Env: slices.Concat(f.env, env), Stderr: w.log,
		})
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return w
}

// await waits until the log contains text.
func (w worker) await(t *testing.T, text string) {
	t.Helper()
	await(t, text, func() bool {
		if len(w.ended) > 0 && !strings.Contains(w.log.String(), text) {
			t.Fatalf("Run() = %v, want %q in the log first\n%s", <-w.ended, text, w.log.String())
		}
		return strings.Contains(w.log.String(), text)
	})
}

// await calls done until it returns true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for every := time.NewTicker(20 * time.Millisecond); !done(); {
		select {
		case <-every.C:
		case <-ctx.Done():
			t.Fatalf("timed out; want: %s", what)
		}
	}
}
