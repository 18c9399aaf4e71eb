package gvisor

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// EngineVersion returns the version of a runsc binary and the date of its source, which is zero if it is unknown. It
// reads Go's build information or, if that is missing, the version that runsc prints, such as release-20260905.0.
func EngineVersion(ctx context.Context, runsc string) (version string, built time.Time, err error) {
	if info, err := buildinfo.ReadFile(runsc); err == nil {
		for _, module := range append(info.Deps, &info.Main) {
			if module.Path == "gvisor.dev/gvisor" && module.Version != "" && module.Version != "(devel)" {
				return module.Version, dateOf(module.Version), nil
			}
		}
	}
	out, err := exec.CommandContext(ctx, runsc, "--version").Output()
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read the version of %s: %w", runsc, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	version = strings.TrimPrefix(line, "runsc version ")
	return version, dateOf(version), nil
}

var dates = regexp.MustCompile(`(?:^|[-.])(20\d{6})(?:\d{6})?(?:[-.]|$)`)

// dateOf returns the date in a version, or the zero time if there is none.
func dateOf(version string) time.Time {
	m := dates.FindStringSubmatch(version)
	if m == nil {
		return time.Time{}
	}
	day, err := time.Parse("20060102", m[1])
	if err != nil {
		return time.Time{}
	}
	return day
}
