// Command queues compares codefleet's queue with other durable task queues: asyncjobs, also on NATS, River on Postgres,
// and Asynq on Redis. All of them sync each acknowledged write to the disk. It is a module of its own, so that
// the product does not depend on them. docs/benchmarks.md explains the numbers.
//
//	apt-get install postgresql redis-server
//	go run -C test/queues .
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/config"
)

func main() {
	natsMain() // does not return in a process that is a NATS server
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "queues:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var programs servers
	var output string
	rounds := flag.Int("n", 3, "rounds; each one measures all queues in turns")
	flag.StringVar(&output, "o", "text", "output: text or json")
	flag.StringVar(&programs.postgres, "postgres", "/usr/lib/postgresql/15/bin", "directory of initdb and postgres")
	flag.StringVar(&programs.redis, "redis", "redis-server", "Redis' server")
	flag.Parse()

	reports, err := bench.Run(ctx, bench.Options{
		Runs:     *rounds,
		Settings: func(string) (*config.Config, error) { return config.Default(), nil },
		Progress: func(what string) { fmt.Fprintln(os.Stderr, what) },
	}, []bench.Scenario{{
		Name: "dispatch", NoSandbox: true,
		Measure: func(b *bench.Bench, ctx context.Context) error { return dispatch(ctx, b, programs) },
	}})
	if err != nil {
		return err
	}
	if output == "json" {
		return bench.WriteJSON(os.Stdout, reports, true)
	}
	return bench.WriteText(os.Stdout, reports)
}
