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
	var results []checkResult
	for _, r := range left {
		detail := fmt.Sprintf("%s of a killed worker; mounts: %d, loop devices: %d, control groups: %d, processes: %d",
			r.Dir, len(r.Mounts), len(r.Disks), len(r.Groups), r.Processes)
		result := checkResult{name, warning, detail, "codefleet doctor --clean"}
		if clean && err == nil {
			result = passed(name, "removed %s", detail)
		}
		results = append(results, result)
	}
	if err != nil {
		result := checkResult{name, warning, text.OneLine(err.Error()), ""}
		if os.Geteuid() != 0 {
			result.Fix = "run codefleet doctor --clean as root"
		}
		results = append(results, result)
	}
	if len(results) == 0 {
		what := "killed workers left nothing on this host"
		if os.Geteuid() != 0 {
			what = "killed workers of this user left nothing on this host"
		}
		results = append(results, passed(name, "%s", what))
	}
	return results
}
