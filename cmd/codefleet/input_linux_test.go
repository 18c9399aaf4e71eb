package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

func TestReadingFilesIsInterruptible(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"--config pipe config show", "--config pipe config check", "--config pipe doctor", "--fleet pipe tasks",
		"privacy scan pipe", "run --file pipe",
	} {
		var write *os.File
		end := closer(func() error { return write.Close() })
		testInterrupt(t, args, strings.NewReader(""), end, func() (err error) {
			write, err = os.OpenFile("pipe", os.O_WRONLY, 0) // returns once the command has opened it
			return err
		})
	}
}

type closer func() error

func (c closer) Close() error { return c() }

// A pipe in the place of a directory is refused at once.
func TestPipeAsDirectory(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	t.Chdir(t.TempDir())
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"workspace push pipe", "workspace pull pipe"} {
		code, _, errs := command(t, f, strings.Split(args, " ")...)
		if code != errcode.ExitUsage || !strings.Contains(errs, "not a directory") {
			t.Errorf("%s: exit code %d, %q; want %d, not a directory", args, code, errs, errcode.ExitUsage)
		}
	}
}
