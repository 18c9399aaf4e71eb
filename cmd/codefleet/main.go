// Command codefleet is the command-line interface of a fleet. `codefleet up` runs a whole fleet in one process tree.
//
// Each command has its own file. Commands that use a fleet call package client; some, such as up, doctor and tools,
// also use this host and its settings. Results go to standard output, everything else to standard error. docs/errors.md
// lists the exit codes.
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
		stdin: os.Stdin, stdout: onScreen(os.Stdout), stderr: onScreen(os.Stderr),
		env: os.Environ(), signals: signals, exit: os.Exit,
		worker: process.RunWorker,
	}
	os.Exit(a.main(context.Background(), os.Args[1:]))
}
