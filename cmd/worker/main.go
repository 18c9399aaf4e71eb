// Command worker claims tasks from the queue and runs them in sandboxes until SIGINT or SIGTERM. Then it claims no more
// tasks and lets running ones finish within worker.drain; a second signal ends it at once. It keeps no state: if it is
// killed, other workers run its tasks again.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/codefleet/codefleet/plugin/workermain"
)

// version is set at build time.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stderr))
}

func run(ctx context.Context, args, env []string, stderr io.Writer) int {
	err := workermain.Run(ctx, workermain.Config{Args: args, Env: env, Stderr: stderr, Version: version})
	return workermain.Exit(ctx, err, stderr)
}
