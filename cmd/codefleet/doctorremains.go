package main

import (
	"context"
	"fmt"
	"os"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/text"
)

// remains reports what killed workers left on this host. With clean, it removes that.
func (p *hostCheck) remains(ctx context.Context, clean bool) []checkResult {
	const name = "remains"
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	left, err := assembly.Remains(ctx, p.Config, clean)
	var found []checkResult
	for _, r := range left {
		detail := fmt.Sprintf("%s of a killed worker; mounts: %d, loop devices: %d, control groups: %d, processes: %d",
			r.Dir, len(r.Mounts), len(r.Disks), len(r.Groups), r.Processes)
		f := checkResult{name, warning, detail, "codefleet doctor --clean"}
		if clean && err == nil {
			f = passed(name, "removed %s", detail)
		}
		found = append(found, f)
	}
	if err != nil {
		f := checkResult{name, warning, text.OneLine(err.Error()), ""}
		if os.Geteuid() != 0 {
			f.Fix = "run codefleet doctor --clean as root"
		}
		found = append(found, f)
	}
	if len(found) == 0 {
		what := "killed workers left nothing on this host"
		if os.Geteuid() != 0 {
			what = "killed workers of this user left nothing on this host"
		}
		found = append(found, passed(name, "%s", what))
	}
	return found
}
