package jobs

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

func noop(context.Context, *Job) (*schemas.Result, error) {
	return &schemas.Result{Status: schemas.Succeeded}, nil
}

// BenchmarkTask runs one task at a time, from Submit to its result, on a server that syncs every write. Besides ns/op
// it reports the median and the 99th percentile of the steps, and how many messages the submitter and the worker send.
func BenchmarkTask(b *testing.B) {
	for _, tcp := range []bool{false, true} {
		b.Run(map[bool]string{false: "inprocess", true: "tcp"}[tcp], func(b *testing.B) {
			f := newFleet(b)
			worker := f
			if tcp {
				opts := f.opts
				opts.Server = Server{URL: f.srv.URL()}
				f = &fleet{srv: f.srv, opts: opts, Client: connect(b, opts)}
				worker = &fleet{srv: f.srv, opts: opts, Client: connect(b, opts)}
			}
			worker.work(b, WorkerOptions{Handler: noop, Slots: 2})
			var write, submit, queued, total []time.Duration // write is the yardstick: one durable write
			n, before := 0, sent(f, worker)
			for b.Loop() {
				n++
				began := time.Now()
				if _, err := f.js.Publish(b.Context(), "dlq.bench.x", make([]byte, 500)); err != nil {
					b.Fatal(err)
				}
				write = append(write, time.Since(began))
				began = time.Now()
				rec := f.submit(b, strconv.Itoa(n), `{"code":"x"}`)
				submit = append(submit, time.Since(began))
				rec = f.await(b, rec.TaskID)
				total = append(total, time.Since(began))
				queued = append(queued, rec.StartedAt.Sub(began))
			}
			b.ReportMetric(float64(sent(f, worker)-before)/float64(n)-1, "messages") // without that of the yardstick
			report(b, "write", write)
			report(b, "submit", submit)
			report(b, "claimed", queued)
			report(b, "total", total)
		})
	}
}

// sent returns how many messages two clients, which may be the same, have sent.
func sent(f, worker *fleet) uint64 {
	n := f.nc.Stats().OutMsgs
	if worker != f {
		n += worker.nc.Stats().OutMsgs
	}
	return n
}

func report(b *testing.B, step string, d []time.Duration) {
	b.Helper()
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2].Microseconds()), step+"-p50-µs")
	b.ReportMetric(float64(d[len(d)*99/100].Microseconds()), step+"-p99-µs")
}

// BenchmarkThroughput measures how fast a worker clears a backlog.
func BenchmarkThroughput(b *testing.B) {
	f := newFleet(b)
	n := 0
	var last schemas.Record
	for b.Loop() {
		n++
		last = f.submit(b, strconv.Itoa(n), `{"code":"x"}`)
	}
	began := time.Now()
	f.work(b, WorkerOptions{Handler: noop, Slots: 8})
	f.await(b, last.TaskID)
	f.awaitEmpty(b)
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "tasks/s")
}
