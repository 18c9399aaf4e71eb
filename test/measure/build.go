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

// built is what a build of the shipped programs from an empty cache costs.
type built struct {
	wall, processor time.Duration
	sizes           []string // "program MB", stripped
}

// build compiles the programs of a checkout as the Makefile does, with an empty build cache. The
// downloaded modules are used as they are.
func build(ctx context.Context, dir string) (built, error) {
	var b built
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

func (b built) cells() []string {
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }
	return []string{seconds(b.wall), seconds(b.processor), strings.Join(b.sizes, ", ")}
}

var buildRows = []string{"build from an empty cache", "processor time of that", "stripped programs, MB"}
