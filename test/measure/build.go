package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// buildCost is the cost of a build of the binaries from an empty cache.
type buildCost struct {
	wall, processor time.Duration
	sizes           []string // "binary MB", each stripped
}

// build compiles the binaries of a checkout with an empty build cache. It uses the modules that
// are already downloaded.
func build(ctx context.Context, dir string) (buildCost, error) {
	var b buildCost
	work, err := os.MkdirTemp("", "measure")
	if err != nil {
		return b, err
	}
	defer os.RemoveAll(work)
	bin := filepath.Join(work, "bin")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin+"/", "./cmd/...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOCACHE="+filepath.Join(work, "cache"))
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return b, fmt.Errorf("go build in %s: %w", dir, err)
	}
	b.wall = time.Since(start)
	b.processor = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	files, err := os.ReadDir(bin)
	if err != nil {
		return b, err
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return b, err
		}
		b.sizes = append(b.sizes, fmt.Sprintf("%s %.1f", f.Name(), float64(info.Size())/1e6))
	}
	return b, nil
}

func (b buildCost) cells() []string {
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }
	return []string{seconds(b.wall), seconds(b.processor), strings.Join(b.sizes, ", ")}
}

// buildRows are the names of the measures that cells returns.
var buildRows = []string{"build from an empty cache", "the build's processor time", "stripped binaries, MB"}
