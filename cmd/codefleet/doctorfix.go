package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
)

// tmpfilesDir is the directory of systemd-tmpfiles, which writes the settings in its files when a host starts.
const tmpfilesDir = "/etc/tmpfiles.d"

// hostFix enables huge pages, the setting of this host that speeds up gVisor's boxes the most.
type hostFix struct {
	state     string // what gvisor.HugePages returned
	root, yes bool
	answer    io.Reader // from which a person's answer is read, unless yes is set
	question  io.Writer
	enable    func() error
}

// fixHost enables huge pages after asking, or returns an error if it may not.
func (a *app) fixHost(yes bool) error {
	return hostFix{
		state: gvisor.HugePages(), root: os.Geteuid() == 0, yes: yes, answer: inputReader{a.stdin}, question: a.stderr,
		enable: func() error { return gvisor.EnableHugePages(tmpfilesDir) },
	}.run()
}

func (h hostFix) run() error {
	if !gvisor.LacksHugePages(h.state) {
		return nil
	}
	if !h.root {
		return &failure{
			code: errcode.ExitUsage, message: "only root can change this host's settings",
			hint: "sudo codefleet doctor --fix",
		}
	}
	fmt.Fprintf(h.question, `Huge pages for shared memory are off (%s). With them, a box needs up to a third less time
to get ready for its next program, and tasks in quick succession may take only a third of the time
(docs/benchmarks.md). The setting applies to the shared memory of all programs on this host, which
may then use a little more memory.
This writes "within_size" to
  %s
and, so that it persists, one line to %s/codefleet.conf. To undo it, write "%s" to the first file
and remove the second.
`, h.state, gvisor.HugePagesFile, tmpfilesDir, h.state)
	if !h.yes && !h.confirmed() {
		return &failure{
			code: errcode.ExitUsage, message: "nothing was changed",
			hint: "answer y, or confirm with codefleet doctor --fix --yes",
		}
	}
	return h.enable()
}

// confirmed asks for a yes. No answer means no.
func (h hostFix) confirmed() bool {
	fmt.Fprint(h.question, "Change this host? [y/N] ")
	line, err := bufio.NewReader(h.answer).ReadString('\n')
	if err != nil { // the input ended without a newline, so the terminal is still in the line of the question
		fmt.Fprintln(h.question)
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}
