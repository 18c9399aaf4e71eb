package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly/sandbox"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/environments"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/worker"
)

// checkResult is the result of a check, one row of doctor's output.
type checkResult struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning or problem
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

const (
	good    = "ok"
	warning = "warning"
	problem = "problem"
)

// passed returns the result of a check that found no problem.
func passed(check, format string, args ...any) checkResult {
	return checkResult{check, good, fmt.Sprintf(format, args...), ""}
}

const (
	probeTime = 15 * time.Second // time limit of most checks
	fetchTime = 5 * time.Minute  // time limit of checks that may download images or read many objects
	bootTime  = time.Minute      // time limit for a task pool's box to boot and import its modules
)

// hostCheck checks this host and its settings.
type hostCheck struct {
	*config.Config
	app  *app
	root bool // whether doctor runs as root
}

func (a *app) doctorCommand() *cobra.Command {
	var clean, fix, yes bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this host can run a fleet, and print fixes",
		Long: "Check whether this host can run a fleet, and print how to fix each problem. The exit code\n" +
			"is 1 if a check finds a problem. Warnings do not change the exit code.",
	}
	c.Flags().BoolVar(&clean, "clean", false,
		"remove what killed workers left on this host: mounts, loop devices, control groups, processes, directories")
	c.Flags().BoolVar(&fix, "fix", false, "as root: enable huge pages on this host after asking, then check the host")
	c.Flags().BoolVar(&yes, "yes", false, "let --fix change this host without asking")
	c.RunE = a.do(func(ctx context.Context, _ []string) error {
		if yes && !fix {
			return usage("--yes has no effect without --fix").try("codefleet doctor --fix --yes")
		}
		if fix {
			if err := a.fixHost(yes); err != nil {
				return err
			}
		}
		return a.doctor(ctx, clean)
	})
	return c
}

func (a *app) doctor(ctx context.Context, clean bool) error {
	results, c := a.checkConfig()
	if c != nil {
		p := &hostCheck{Config: c, app: a, root: os.Geteuid() == 0}
		results = append(results, p.remains(ctx, clean)...)
		for _, check := range []func(context.Context) checkResult{
			within(probeTime, p.python), within(probeTime, p.runsc), within(probeTime, p.microsandbox),
			within(fetchTime, p.boot), within(probeTime, p.userNamespaces), within(probeTime, p.cgroups),
			within(probeTime, p.disk), within(probeTime, p.memory), within(probeTime, p.hugePages),
			within(probeTime, p.openFiles), within(probeTime, p.clock), within(probeTime, p.queue),
			within(probeTime, p.store), within(probeTime, p.encryption), within(probeTime, p.model),
			within(probeTime, p.fleet),
		} {
			if results = append(results, check(ctx)); ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		results = append(results, p.secretsInUse(ctx)...)
		if results = append(results, p.pools(ctx)...); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	for i := range results {
		results[i].Fix = a.withFlags(results[i].Fix)
	}
	if err := a.print(results, func(w io.Writer) { showCheckResults(w, results) }); err != nil {
		return err
	}
	if slices.ContainsFunc(results, func(r checkResult) bool { return r.Status == problem }) {
		return &failure{code: errcode.ExitFailed}
	}
	return nil
}

// within adds a time limit to a check.
func within(limit time.Duration, check func(context.Context) checkResult) func(context.Context) checkResult {
	return func(ctx context.Context) checkResult {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return check(ctx)
	}
}

func showCheckResults(w io.Writer, results []checkResult) {
	marks := map[string]string{good: "✓", warning: "!", problem: "✗"}
	for _, r := range results {
		row(w, marks[r.Status]+" "+r.Check, r.Detail)
		if r.Fix != "" {
			row(w, "", "→ "+r.Fix)
		}
	}
}

// checkConfig loads the settings, and returns its result with them. If it cannot load them, the settings are nil.
func (a *app) checkConfig() ([]checkResult, *config.Config) {
	c, err := a.loadSilently()
	if err == nil {
		if err := c.CheckLiveFolder(); err != nil {
			return []checkResult{{"config", problem, strings.ReplaceAll(err.Error(), "\n  ", "; "), ""}}, c
		}
	}
	if err != nil {
		return []checkResult{
			{"config", problem, strings.ReplaceAll(err.Error(), "\n  ", "; "), "codefleet config check"},
		}, nil
	}
	if len(c.Warnings) > 0 {
		return []checkResult{{"config", warning, strings.Join(c.Warnings, "; "), ""}}, c
	}
	return []checkResult{passed("config", "data in %s", c.Data)}, c
}

// memory checks whether the memory for tasks suffices for a task in every slot.
func (p *hostCheck) memory(context.Context) checkResult {
	total, perTask, slots := sandbox.MemoryMBTotal(p.Config), p.Guardrails.MaxMemoryMB, p.Slots()
	if total == 0 {
		return passed("memory", "not limited")
	}
	r := passed("memory", "%d MB for tasks; tasks of %d MB that fit: %d; slots: %d",
		total, perTask, total/perTask, slots)
	if total/perTask < slots {
		r.Status, r.Fix = warning, "tasks will wait for memory: change execution.memory_mb_total, "+
			"guardrails.max_memory_mb or worker.slots"
	}
	return r
}

// python checks the interpreter that gVisor's boxes use, and that installs packages: the system's Python, even if
// another one comes first in PATH.
func (p *hostCheck) python(ctx context.Context) checkResult {
	const name, path, install = "python", "/usr/bin/python3", "apt-get install python3  (or set execution.rootfs)"
	installs := p.Execution.Requirements != ""
	for _, pool := range p.Pools {
		installs = installs || pool.Requirements != ""
	}
	if p.Execution.SandboxType == "microsandbox" && !installs {
		return passed(name, "not needed: execution.sandbox_type is microsandbox")
	}
	if p.Execution.Rootfs != "" && !installs {
		return passed(name, "from execution.rootfs, %s", p.Execution.Rootfs)
	}
	out, err := exec.CommandContext(ctx, path, "-I", "-c",
		"import os,sys; print(os.path.realpath(sys.executable), '%d.%d.%d' % sys.version_info[:3], "+
			"sys.version_info >= (3, 9))").Output()
	var target, version, supported string
	_, _ = fmt.Sscan(string(out), &target, &version, &supported) // out is empty after an error
	switch {
	case err != nil:
		return checkResult{name, problem, fmt.Sprintf("%s does not run: %v", path, err), install}
	case supported != "True":
		return checkResult{name, problem, fmt.Sprintf("%s is Python %s; want 3.9 or newer", target, version), install}
	case !strings.HasPrefix(target, "/usr/") || strings.HasPrefix(target, "/usr/local/"):
		message := fmt.Sprintf("%s is a link to %s, which is not visible in a box", path, target)
		return checkResult{name, problem, message, install}
	}
	return passed(name, "%s, %s", version, target)
}

// maxEngineAge is the age above which doctor suggests a newer engine.
const maxEngineAge = 365 * 24 * time.Hour

// runsc checks the runsc binary, which is optional if microsandbox can be used instead.
func (p *hostCheck) runsc(ctx context.Context) checkResult {
	const name, install = "runsc", "make build  (puts bin/runsc beside this binary), or set execution.runsc"
	path, err := sandbox.Runsc(p.Config)
	if err != nil {
		missing, install := "the gVisor engine is not installed", install
		if p.Execution.Runsc != "" {
			r := errorResult(name, problem, err)
			missing, install = r.Detail, r.Fix
		}
		_, msbErr := sandbox.Msb(p.Config)
		switch kind := p.Execution.SandboxType; {
		case kind == "microsandbox":
			return passed(name, "not needed: execution.sandbox_type is microsandbox")
		case kind == "auto" && msbErr == nil:
			return checkResult{name, warning, missing + "; it is the fallback if microsandbox does not boot", install}
		}
		return checkResult{name, problem, missing, install}
	}
	version, released, err := gvisor.EngineVersion(ctx, path)
	if err != nil {
		return checkResult{name, problem, err.Error(), install}
	}
	return withAge(passed(name, "%s, %s", version, path), released,
		"install a newer one: raise gvisor.dev/gvisor in tools/go.mod, then make build")
}

// hugePages checks the kernel settings that let gVisor use huge pages. No other setting of the host
// speeds up gVisor as much.
func (p *hostCheck) hugePages(context.Context) checkResult {
	return hugePages(p.Execution.SandboxType, gvisor.HugePages())
}

// hugePages judges what gvisor.HugePages returned.
func hugePages(sandboxType, state string) checkResult {
	const name, gain = "huge pages", "; enable them to make gVisor boxes ready for the next program sooner"
	switch {
	case sandboxType == "microsandbox":
		return passed(name, "not needed: execution.sandbox_type is microsandbox")
	case state == "":
		return passed(name, "not available: the kernel has no 64 kB pages for shared memory")
	case gvisor.LacksHugePages(state):
		return checkResult{
			name, warning, "64 kB pages for shared memory: " + state + gain, "sudo codefleet doctor --fix",
		}
	case state == "deny":
		return checkResult{
			name, warning, "shared memory: deny, which overrides the setting for 64 kB pages" + gain,
			"echo never | sudo tee " + gvisor.AllHugePagesFile + ", then codefleet doctor",
		}
	}
	return passed(name, "64 kB pages for shared memory: %s", state)
}

// withAge adds the age of an engine, and a warning if the engine is old or its age is unknown.
func withAge(r checkResult, released time.Time, upgrade string) checkResult {
	age := time.Since(released)
	if released.IsZero() || age > maxEngineAge {
		r.Status, r.Fix = warning, upgrade
	}
	if released.IsZero() {
		r.Detail += ", age unknown"
	} else {
		r.Detail += ", " + text.Count(int(age.Hours()/24), "day") + " old"
	}
	return r
}

// microsandbox checks the msb binary, which is optional unless the settings require microsandbox.
func (p *hostCheck) microsandbox(ctx context.Context) checkResult {
	const name, upgrade = "msb", "npm install --prefix DIR @superradcompany/microsandbox-linux-x64-gnu, then set " +
		"execution.msb: DIR/…/bin/msb"
	kind := p.Execution.SandboxType
	if kind == "gvisor" {
		return passed(name, "not needed: execution.sandbox_type is gvisor")
	}
	severity := warning
	if kind == "microsandbox" {
		severity = problem
	}
	path, err := sandbox.Msb(p.Config)
	if err != nil && kind == "auto" && p.Execution.Msb == "" {
		return passed(name, "not installed; on hardware with virtualisation it isolates boxes more strongly")
	}
	if err != nil {
		return errorResult(name, severity, err)
	}
	driver, err := sandbox.Microsandbox(p.Config, p.msbDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		return errorResult(name, severity, err)
	}
	defer func() { _ = driver.Close() }() // the driver has created no box that Close could fail to remove
	version, released, err := driver.EngineVersion(ctx)
	if err != nil {
		return errorResult(name, severity, err)
	}
	return withAge(passed(name, "%s, %s", version, path), released, upgrade)
}

// msbDir returns the first worker's directory for microsandbox. Doctor and the worker share it, so that an image is
// downloaded only once.
func (p *hostCheck) msbDir() string { return worker.FirstDir(p.Data).Microsandbox() }

// errorResult returns the result of a check that found an error. A HostError adds its reason and its fix.
func errorResult(name, status string, err error) checkResult {
	host, ok := errors.AsType[*executor.HostError](err)
	if !ok {
		return checkResult{name, status, text.OneLine(err.Error()), ""}
	}
	return checkResult{name, status, text.OneLine(fmt.Sprintf("%s: %v", host.Reason, host.Err)), host.Fix}
}

// boot boots a box, because no other check can prove that one boots.
func (p *hostCheck) boot(ctx context.Context) checkResult {
	const name = "sandbox"
	dir, err := os.MkdirTemp("", "codefleet-")
	if err != nil {
		return checkResult{name, problem, err.Error(), "set TMPDIR to a writable directory"}
	}
	defer os.RemoveAll(dir)
	start := time.Now()
	driver, err := sandbox.Choose(ctx, p.Config, p.msbDir(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return errorResult(name, problem, err)
	}
	defer func() { _ = driver.Close() }() // after an error, RemoveAll removes the rest
	info, err := driver.Probe(ctx)
	if err != nil {
		return checkResult{
			name, problem, "a box does not boot: " + err.Error(), "see the rows runsc, python and user namespaces",
		}
	}
	r := passed(name, "%s boots a box with Python in %s; limits by %s, root file system: %s",
		info.Driver, duration(time.Since(start)), info.Limits, info.Environment)
	if driver.Rejected != nil {
		rejection := errorResult(name, warning, driver.Rejected)
		r.Status, r.Detail, r.Fix = warning, r.Detail+"; microsandbox does not work: "+rejection.Detail,
			cmp.Or(rejection.Fix, "set execution.sandbox_type: gvisor to accept gVisor")
	}
	return withTenants(r, p.Config, info)
}

// withTenants adds to the result of boot that several tenants must not share the boxes, if that is so.
func withTenants(r checkResult, c *config.Config, info executor.Info) checkResult {
	shared := environments.New(environments.Options{Config: c, Info: info}).SharedWithHost()
	if len(shared) == 0 {
		return r
	}
	r.Detail += "; for one tenant only"
	if len(c.Tenants) > 1 {
		r.Detail += " (task pools " + strings.Join(shared, ", ") + ")"
		r.Status, r.Fix = problem,
			"run as root with execution.rootfs, or with an image for each task pool, or configure one tenant"
	}
	return r
}

// fleet checks the fleet that other commands would use.
func (p *hostCheck) fleet(ctx context.Context) checkResult {
	const name, start = "fleet", "codefleet up"
	options, err := p.app.locate()
	if errors.Is(err, client.ErrNoFleet) || errors.Is(err, fs.ErrNotExist) && !p.app.namesFleet() {
		return checkResult{name, warning, "no fleet is running or configured", start}
	}
	if err != nil {
		return checkResult{name, problem, inWords(err), start}
	}
	options.RetryFor = -1
	address := text.HideCredentials(options.URL)
	c, err := client.New(ctx, options)
	if err != nil {
		return checkResult{name, problem, err.Error(), start}
	}
	defer c.Close()
	f, err := c.Fleet(ctx)
	if e, ok := errors.AsType[*client.APIError](err); ok {
		return checkResult{name, warning, address + ": " + e.Message, e.Hint}
	}
	if err != nil {
		return checkResult{name, warning, fmt.Sprintf("%s does not respond: %v", address, err), start}
	}
	if len(f.Workers) == 0 {
		return checkResult{name, problem, address + " has no worker", "start bin/worker"}
	}
	return passed(name, "%s, workers: %d", address, len(f.Workers))
}

// model names the model that writes programs. A fleet works without one.
func (p *hostCheck) model(context.Context) checkResult {
	return passed("model", "%s", modelText(p.Config))
}

// moduleVersion returns the version of a module in this binary.
func moduleVersion(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return "(unknown version)"
}
