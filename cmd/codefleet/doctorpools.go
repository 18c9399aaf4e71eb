package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/assembly/sandbox"
	"github.com/codefleet/codefleet/internal/environments"
	"github.com/codefleet/codefleet/internal/executor"
)

// pools prepares each task pool's environment as a worker does, and boots a box with it. Installed packages and
// unpacked images are kept for workers that start later.
func (p *hostCheck) pools(ctx context.Context) []checkResult {
	if len(p.Pools) == 0 && p.Execution.Requirements == "" && p.Execution.SandboxImage == "" {
		return nil
	}
	dir, err := os.MkdirTemp("", "codefleet-")
	if err != nil {
		return []checkResult{{"pools", problem, err.Error(), "set TMPDIR to a writable directory"}}
	}
	defer os.RemoveAll(dir)
	log := slog.New(slog.DiscardHandler)
	driver, err := sandbox.Choose(ctx, p.Config, p.msbDir(), dir, log)
	if err != nil {
		return nil // hostCheck.boot reports the error
	}
	defer func() { _ = driver.Close() }() // after an error, RemoveAll removes the rest
	var results []checkResult
	all := environments.New(environments.Options{Config: p.Config, Driver: driver.Driver, Info: driver.Info, Log: log})
	defer all.Close()
	for _, e := range all.List() {
		check := within(fetchTime, func(ctx context.Context) checkResult { return checkPool(ctx, driver, e, dir) })
		results = append(results, check(ctx))
	}
	return results
}

// checkPool prepares an environment and boots a box with it.
func checkPool(ctx context.Context, driver executor.Driver, e executor.Environment, dir string) (r checkResult) {
	name, start := "pool "+e.Name, time.Now()
	root, err := e.Prepare(ctx)
	if err != nil {
		return errorResult(name, problem, err)
	}
	workspace, err := os.MkdirTemp(dir, "w")
	if uid := executor.DefaultGuest().UID; err == nil && os.Geteuid() == 0 {
		err = os.Chown(workspace, uid, uid)
	}
	if err != nil {
		return checkResult{name, problem, err.Error(), ""}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootTime, errors.New("not ready after "+bootTime.String()))
	defer cancel()
	box, err := executor.NewPreloaded(ctx, driver, executor.Spec{
		Name: "d", Owner: "doctor", Image: root.Image, Mounts: root.Mounts, Workspace: workspace,
	}, root.Preload, "")
	if err != nil {
		return errorResult(name, problem, err)
	}
	defer func() {
		if err := box.Close(context.WithoutCancel(ctx)); err != nil && r.Status != problem {
			r = checkResult{name, problem, err.Error(), ""}
		}
	}()
	verdict, err := box.Run(ctx, executor.Program{TaskID: "doctor", Code: "1"}, executor.Hooks{})
	if err == nil && verdict.Error != nil {
		err = errors.New("run a one-line program: " + verdict.Error.Message)
	}
	if err != nil {
		return errorResult(name, problem, err)
	}
	took := duration(time.Since(start))
	details := []string{fmt.Sprintf("prepares and boots a box with Python %s in %s", box.Python(), took)}
	for _, detail := range []string{root.Description, root.Added, strings.Join(root.Packages, ", ")} {
		if detail != "" {
			details = append(details, cell(detail))
		}
	}
	return passed(name, "%s", strings.Join(details, "; "))
}
