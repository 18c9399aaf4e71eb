// Command codefleet is the command line of a fleet, and with `up` a whole fleet in one process tree.
//
// Each verb is a file here and speaks to the fleet through package client only. Results go to
// standard output, everything else to standard error. Exit codes: 0 succeeded, 1 the task failed or
// is dead, 2 usage, configuration or unknown id, 3 the fleet could not be reached, 4 refused, 5 timed
// out, cancelled or expired.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/process"
)

// version is set at build time.
var version = "dev"

func main() {
	embedded.S3Main() // never returns in the process that serves S3 for `up`
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		env: os.Environ(), signals: signals, exit: os.Exit,
		worker: process.RunWorker,
	}
	os.Exit(a.main(context.Background(), os.Args[1:]))
}
