// Command worker takes tasks from the queue and runs them in sandboxes, until SIGINT or SIGTERM. Then
// it takes no more and lets running tasks end (worker.drain); a second signal ends it at once. It
// keeps nothing: its tasks run elsewhere when it is killed.
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
	take, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(take, stop) // the second signal is the system's again
	os.Exit(run(take, os.Args[1:], os.Environ(), os.Stderr))
}

func run(take context.Context, args, env []string, stderr io.Writer) int {
	err := workermain.Run(take, workermain.Config{Args: args, Env: env, Stderr: stderr, Version: version})
	return workermain.Exit(take, err, stderr)
}
