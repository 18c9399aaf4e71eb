package main

import (
	"context"
	"fmt"
	"os"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/text"
)

// remains reports what ended workers have left on this host or, with clean, what was removed.
func (p *hostCheck) remains(ctx context.Context, clean bool) []finding {
	const name = "remains"
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	left, err := assembly.Remains(ctx, p.Config, clean)
	var found []finding
	for _, r := range left {
		what := fmt.Sprintf("of an ended worker in %s: mounts: %d, loop devices: %d, control groups: %d, processes: %d",
			r.Dir, len(r.Mounts), len(r.Disks), len(r.Groups), r.Processes)
		f := finding{name, warning, what, "codefleet doctor --clean"}
		if clean && err == nil {
			f = finding{name, good, "removed " + what, ""}
		}
		found = append(found, f)
	}
	if err != nil {
		f := finding{name, warning, text.OneLine(err.Error()), ""}
		if os.Geteuid() != 0 {
			f.Fix = "run codefleet doctor --clean as root"
		}
		found = append(found, f)
	}
	if len(found) == 0 {
		found = append(found, finding{name, good, "ended workers have left nothing on this host", ""})
	}
	return found
}
