package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/worker"
)

// finding is one row of doctor.
type finding struct {
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

// probeTime is the limit of most checks.
const probeTime = 15 * time.Second

// bootTime is how long a worker waits for a box to be ready, with its modules imported.
const bootTime = time.Minute

// fetchTime is the limit of checks that may download much: of an image to boot a box from, and of the objects
// that old secrets encrypt.
const fetchTime = 5 * time.Minute

// examination is of one host with its settings.
type examination struct {
	*config.Config
	app  *app
	root bool
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check what this host needs to run a fleet, with fixes",
		Long: "Check what this host needs to run a fleet, and print how to fix what is missing. The\n" +
			"exit code is 1 if something must be fixed, 0 otherwise.",
		Args: noArgs,
		RunE: a.do(a.doctor),
	}
}

func (a *app) doctor(ctx context.Context, _ []string) error {
	found, c := a.checkConfig()
	if c != nil {
		p := &examination{Config: c, app: a, root: os.Geteuid() == 0}
		for _, check := range []func(context.Context) finding{
			within(probeTime, p.python), within(probeTime, p.engine), within(probeTime, p.microsandbox),
			within(fetchTime, p.boot), within(probeTime, p.userNamespaces), within(probeTime, p.cgroups),
			within(probeTime, p.disk), within(probeTime, p.memory), within(probeTime, p.hugePages),
			within(probeTime, p.openFiles), within(probeTime, p.clock), within(probeTime, p.queue),
			within(probeTime, p.store), within(probeTime, p.encryption), within(probeTime, p.fleet),
		} {
			found = append(found, check(ctx))
		}
		found = append(found, p.secretsInUse(ctx)...)
		found = append(found, p.pools(ctx)...)
	}
	if err := a.print(found, func(w io.Writer) { showFindings(w, found) }); err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(f finding) bool { return f.Status == problem }) {
		return &failure{code: errcode.ExitFailed}
	}
	return nil
}

// within returns a check with a time limit.
func within(limit time.Duration, check func(context.Context) finding) func(context.Context) finding {
	return func(ctx context.Context) finding {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return check(ctx)
	}
}

func showFindings(w io.Writer, found []finding) {
	marks := map[string]string{good: "✓", warning: "!", problem: "✗"}
	for _, f := range found {
		row(w, marks[f.Status]+" "+f.Check, f.Detail)
		if f.Fix != "" {
			row(w, "", "→ "+f.Fix)
		}
	}
}

func (a *app) checkConfig() ([]finding, *config.Config) {
	c, err := config.Load(config.Source{File: a.config, Env: a.env})
	if err != nil {
		return []finding{
			{"config", problem, strings.ReplaceAll(err.Error(), "\n  ", "; "), "codefleet config check"},
		}, nil
	}
	if len(c.Warnings) > 0 {
		return []finding{{"config", warning, strings.Join(c.Warnings, "; "), ""}}, c
	}
	return []finding{{"config", good, "data in " + c.Data, ""}}, c
}

// memory compares the memory for tasks with what the tasks of all slots may request.
func (p *examination) memory(context.Context) finding {
	total, perTask, slots := sandbox.MemoryMBTotal(p.Config), p.Guardrails.MaxMemoryMB, p.Slots()
	if total == 0 {
		return finding{"memory", good, "not limited", ""}
	}
	f := finding{
		"memory", good,
		fmt.Sprintf("%d MB for tasks: %d at a time of %d MB, %d slots", total, total/perTask, perTask, slots), "",
	}
	if total/perTask < slots {
		f.Status, f.Fix = warning, "tasks will wait for memory: execution.memory_mb_total, "+
			"guardrails.max_memory_mb or worker.slots"
	}
	return f
}

// python checks the interpreter that boxes use: that of the system, not the first on PATH.
func (p *examination) python(ctx context.Context) finding {
	const name, path, install = "python", "/usr/bin/python3", "apt-get install python3  (or set execution.rootfs)"
	if p.Execution.Rootfs != "" {
		return finding{name, good, "of execution.rootfs, " + p.Execution.Rootfs, ""}
	}
	out, err := exec.CommandContext(ctx, path, "-I", "-c",
		"import os,sys; print(os.path.realpath(sys.executable), '%d.%d.%d' % sys.version_info[:3], "+
			"sys.version_info >= (3, 9))").Output()
	target, version, ok := cut3(string(out))
	switch {
	case err != nil:
		return finding{name, problem, fmt.Sprintf("%s does not run: %v", path, err), install}
	case ok != "True":
		return finding{name, problem, fmt.Sprintf("%s is %s, and 3.9 is needed", target, version), install}
	case !strings.HasPrefix(target, "/usr/") || strings.HasPrefix(target, "/usr/local/"):
		return finding{name, problem, fmt.Sprintf("%s is %s, which a box does not see", path, target), install}
	}
	return finding{name, good, fmt.Sprintf("%s, %s", version, target), ""}
}

func cut3(s string) (a, b, c string) {
	fields := append(strings.Fields(s), "", "", "")
	return fields[0], fields[1], fields[2]
}

// tooOld is the age of an engine from which doctor suggests a newer one.
const tooOld = 365 * 24 * time.Hour

func (p *examination) engine(ctx context.Context) finding {
	const name, install = "runsc", "make build  (puts bin/runsc beside this binary), or set execution.runsc"
	path, err := sandbox.Runsc(p.Config)
	if err != nil && p.Execution.SandboxType == "microsandbox" {
		return finding{name, good, "the gVisor engine is not installed, and not needed: execution.sandbox_type " +
			"is microsandbox", ""}
	}
	if _, other := sandbox.Msb(p.Config); err != nil && other == nil && p.Execution.SandboxType == "auto" {
		return finding{
			name, warning, "the gVisor engine is not installed; it is used where microsandbox does not boot",
			install,
		}
	}
	if err != nil {
		return finding{name, problem, "the gVisor engine is not installed", install}
	}
	version, made, err := gvisor.EngineVersion(ctx, path)
	if err != nil {
		return finding{name, problem, err.Error(), install}
	}
	return aged(finding{
		name, good, fmt.Sprintf("%s, %s", version, path), "",
	}, made, "install a newer one: raise gvisor.dev/gvisor in tools/go.mod, then make build")
}

// hugePages checks the setting of the host that speeds gVisor up most.
func (p *examination) hugePages(context.Context) finding {
	return hugePages(p.Execution.SandboxType, gvisor.HugePages())
}

func hugePages(sandboxType, state string) finding {
	const name, gain = "huge pages", "; with them gVisor is ready for the next program sooner"
	switch {
	case sandboxType == "microsandbox":
		return finding{name, good, "not needed: execution.sandbox_type is microsandbox", ""}
	case state == "":
		return finding{name, good, "not available: the kernel has none of 64 kB for shared memory, which make " +
			"gVisor faster", ""}
	case state == "never" || state == "advise":
		return finding{
			name, warning, "of 64 kB for shared memory: " + state + gain,
			"echo within_size | sudo tee " + gvisor.HugePagesFile + "  (keep it: a w line in /etc/tmpfiles.d)",
		}
	case state == "deny":
		return finding{
			name, warning, "of any size for shared memory: deny" + gain,
			"echo never | sudo tee " + gvisor.AllHugePagesFile + ", then codefleet doctor",
		}
	}
	return finding{name, good, "of 64 kB for shared memory: " + state, ""}
}

// aged adds the age of an engine, and a warning if it is old or of unknown age.
func aged(f finding, made time.Time, newer string) finding {
	age := time.Since(made)
	switch {
	case made.IsZero():
		f.Status, f.Detail, f.Fix = warning, f.Detail+", of unknown age", newer
	case age > tooOld:
		f.Status, f.Fix = warning, newer
		fallthrough
	default:
		f.Detail += fmt.Sprintf(", %d days old", int(age.Hours()/24))
	}
	return f
}

// microsandbox checks the program of the stronger sandbox, which is optional unless the settings name it.
func (p *examination) microsandbox(ctx context.Context) finding {
	const name, newer = "msb", "npm install --prefix DIR @superradcompany/microsandbox-linux-x64-gnu, then " +
		"execution.msb: DIR/…/bin/msb"
	kind := p.Execution.SandboxType
	if kind == "gvisor" {
		return finding{name, good, "not needed: execution.sandbox_type is gvisor", ""}
	}
	bad := warning
	if kind == "microsandbox" {
		bad = problem
	}
	path, err := sandbox.Msb(p.Config)
	if err != nil && kind == "auto" && p.Execution.Msb == "" {
		return finding{
			name, good, "not installed; with hardware virtualisation it would make stronger sandboxes", "",
		}
	}
	if err != nil {
		return failed(name, bad, err)
	}
	driver, err := sandbox.Microsandbox(p.Config, p.msbDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		return failed(name, bad, err)
	}
	defer func() { _ = driver.Close() }() // it has created nothing
	version, made, err := driver.EngineVersion(ctx)
	if err != nil {
		return failed(name, bad, err)
	}
	return aged(finding{name, good, fmt.Sprintf("%s, %s", version, path), ""}, made, newer)
}

// msbDir returns the directory of the first worker, so that images are downloaded once for both.
func (p *examination) msbDir() string { return worker.FirstDir(p.Data).Microsandbox() }

// failed returns a finding for an error, with the reason and the fix of a HostError.
func failed(name, status string, err error) finding {
	var host *executor.HostError
	if !errors.As(err, &host) {
		return finding{name, status, text.OneLine(err.Error()), ""}
	}
	return finding{name, status, text.OneLine(fmt.Sprintf("%s: %v", host.Reason, host.Err)), host.Fix}
}

// boot starts a sandbox: only that proves that one starts.
func (p *examination) boot(ctx context.Context) finding {
	const name = "sandbox"
	dir, err := os.MkdirTemp("", "codefleet-")
	if err != nil {
		return finding{name, problem, err.Error(), "set TMPDIR to a writable directory"}
	}
	defer os.RemoveAll(dir)
	begun := time.Now()
	box, err := sandbox.Choose(ctx, p.Config, p.msbDir(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return failed(name, problem, err)
	}
	defer func() { _ = box.Close() }() // its directory is removed as a whole
	info, err := box.Probe(ctx)
	if err != nil {
		return finding{
			name, problem, "a box does not boot: " + err.Error(),
			"see the rows of runsc, python and user namespaces",
		}
	}
	f := finding{
		name, good,
		fmt.Sprintf("%s boots a box with Python in %s; limits by %s, root is %s",
			info.Driver, short(time.Since(begun)), info.Limits, info.Environment),
		"",
	}
	if box.Rejected != nil {
		why := failed(name, warning, box.Rejected)
		f.Status, f.Detail, f.Fix = warning, f.Detail+"; not microsandbox: "+why.Detail,
			cmp.Or(why.Fix, "set execution.sandbox_type: gvisor if this is intended")
	}
	if !info.MultiTenant {
		f.Detail += "; for one tenant only"
		if !p.SingleTenant() {
			f.Status, f.Fix = problem, "run as root with execution.rootfs, or configure one tenant"
		}
	}
	return f
}

func (p *examination) queue(ctx context.Context) finding {
	if p.NATS.URL == "" {
		return finding{
			"queue", good,
			fmt.Sprintf("embedded nats-server %s, every write on disk before it is acknowledged",
				dependency("github.com/nats-io/nats-server/v2")),
			"",
		}
	}
	return p.app.probeQueue(ctx, p.Config)
}

func (p *examination) store(ctx context.Context) finding {
	if p.S3.Endpoint == "" {
		return finding{
			"object store", good,
			fmt.Sprintf("embedded, versitygw %s, conditional writes", dependency("github.com/versity/versitygw")),
			"",
		}
	}
	return p.app.probeStore(ctx, p.Config)
}

// fleet checks the fleet that the command line would use.
func (p *examination) fleet(ctx context.Context) finding {
	const name, start = "fleet", "codefleet up"
	found, err := client.Locate(p.app.fleet)
	if err != nil {
		return finding{name, warning, "no fleet is running or configured", start}
	}
	found.RetryFor = -1
	c, err := client.New(ctx, found)
	if err != nil {
		return finding{name, problem, err.Error(), start}
	}
	defer c.Close()
	f, err := c.Fleet(ctx)
	if err != nil {
		return finding{name, warning, fmt.Sprintf("%s does not answer: %v", found.URL, err), start}
	}
	if len(f.Workers) == 0 {
		return finding{name, problem, found.URL + " has no worker", "start bin/worker"}
	}
	return finding{name, good, fmt.Sprintf("%s, workers: %d", found.URL, len(f.Workers)), ""}
}

// dependency returns the version of a module in this program.
func dependency(module string) string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return "of unknown version"
}
