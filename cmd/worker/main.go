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
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	c := workermain.Config{Args: args, Env: env, Stdout: stdout, Stderr: stderr, Version: version}
	err := workermain.Run(ctx, c)
	return workermain.Exit(ctx, err, stderr)
}
