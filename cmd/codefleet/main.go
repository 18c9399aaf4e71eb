// Command codefleet is the command line of a fleet, and with `up` a whole fleet in one process tree.
//
// Each command is a file. Commands that talk to a fleet do so through package client; doctor, up and tools work on the
// host and its settings. Results go to standard output,
// everything else to standard error. The exit codes are in internal/errcode and docs/errors.md.
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
