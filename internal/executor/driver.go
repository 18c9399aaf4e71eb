package executor

import (
	"context"
	"io"

	"github.com/codefleet/codefleet/internal/executor/runner"
)

// A Driver creates boxes. It may also be a [Prober] or an [Inspector], a [Sweeper] and an [Interpreter].
// Its methods may be called from several goroutines.
type Driver interface {
	// Create creates a box in which no process runs yet. After an error, nothing is left behind.
	Create(ctx context.Context, spec Spec) (Box, error)
}

// A Box is one isolated container or machine. It may also be a [Limiter], a [StatsReporter], a
// [MemoryMeter], an [OOMReporter], a [Snapshotter], a [ModeResetter] and a [GuestReporter].
type Box interface {
	// Exec starts argv in the box, with the environment in the box's Spec. The context bounds only the
	// start; the process lives until it ends or the box is destroyed.
	Exec(ctx context.Context, argv []string) (Session, error)

	// Destroy kills all processes in the box and removes everything that belongs to it except the
	// workspace directory. It may be called more than once, and while a session is in use.
	Destroy(ctx context.Context) error
}

// A Session is one process in a box.
type Session interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader // ends when the process or the box has ended
	Stderr() io.Reader

	// Wait returns the exit code, or 128 + the signal that killed the process. It may be called once,
	// after Stdout and Stderr have been read to their ends.
	Wait() (code int, err error)
}

// A Prober is a Driver that can boot a box to find out whether the driver works on this host. The error of Probe says
// what to install or change.
type Prober interface {
	Probe(ctx context.Context) (Info, error)
}

// An Inspector is a Prober that can describe itself without a boot. A pool then probes only if it cannot
// create its first box.
type Inspector interface {
	Prober
	Inspect(ctx context.Context) (Info, error)
}

// A Sweeper is a Driver that can remove what a dead process of the same owner left behind: processes,
// mounts, cgroups, directories.
type Sweeper interface {
	Sweep(ctx context.Context, owner string) error
}

// An Interpreter is a Driver whose boxes use their image's Python, not the host's. The method fetches the
// image, which may take long, and describes the Python for which package layers must be built. An empty image
// means the driver's default.
type Interpreter interface {
	Interpreter(ctx context.Context, image string) (Python, error)
}

// Python describes the interpreter of an image.
type Python struct {
	Version   string   // such as 3.12.1
	Platforms []string // platform tags of the wheels it accepts, best first, such as manylinux_2_28_x86_64
}

// A Limiter is a Box whose outer limits (memory, CPU share) can be set when it is acquired.
type Limiter interface {
	Limit(ctx context.Context, limits Limits) error
}

// A StatsReporter is a Box that reports the resources it uses.
type StatsReporter interface {
	Stats(ctx context.Context) (Stats, error)
}

// A MemoryMeter is a box whose engine may keep memory after a program has ended, so that the next program has less of
// the outer limit.
type MemoryMeter interface {
	StatsReporter
	// UsesMoreThan compares Stats.MemoryMB with mb. It takes microseconds, because the result of a program may wait for
	// it. It returns false if the box has no outer memory limit.
	UsesMoreThan(mb float64) bool
}

// An OOMReporter is a Box that knows whether the host's kernel has killed one of its processes because of its outer
// memory limit. In other boxes, the exit code 137 of the runner is taken to mean that.
type OOMReporter interface {
	OutOfMemory() bool
}

// A Snapshotter is a Box that can be saved to a snapshot and restored from one.
type Snapshotter interface {
	// Snapshot saves the processes in the box to dir, which it makes, and lets them continue. After an
	// error the box must be destroyed and dir removed.
	Snapshot(ctx context.Context, dir string) error

	// Restore is called instead of the first Exec. argv must be equal to the argv of the first Exec in the saved
	// box; the session is that of the process that was started there. Both boxes must have equal files, and equal Specs
	// except for Name, Workspace, Views, the sources of the views' mounts, and limits. If a snapshot is damaged, the
	// session may just end.
	Restore(ctx context.Context, dir string, argv []string) (Session, error)
}

// A ModeResetter is a Box in which the files of the workspace can have other modes than on the host.
type ModeResetter interface {
	// ResetModes gives the workspace's files, in the box, the modes that they have on the host. Call it only while no
	// program runs in the box.
	ResetModes() error
}

// A GuestReporter is a Box that differs from [DefaultGuest] inside.
type GuestReporter interface {
	Guest() Guest
}

// Guest describes the inside of a box to the runner.
type Guest = runner.Guest

// DefaultGuest describes the inside of a box that is not a [GuestReporter].
func DefaultGuest() Guest {
	return Guest{
		Python:       "/usr/bin/python3",
		Workspace:    "/workspace",
		Catalogue:    "/opt/codefleet",
		Scratch:      []string{"/tmp", "/dev/shm"},
		SeparateUser: true,
		UID:          65534,
	}
}

// PackagesDir is where a box may have a package layer. On Python's path it precedes the box's other packages.
const PackagesDir = "/opt/packages"

// Info describes a driver on this host.
type Info struct {
	Driver        string // a driver's name in package drivers, or "host" in tests
	EngineVersion string
	Tier          string // a tier in package drivers; compared with a task's min_tier
	Limits        string // "cgroup" if boxes have outer memory and CPU limits, else "rlimit"
	Environment   string // describes the root file system, such as "host /usr"
	MultiTenant   bool   // boxes of several tenants may run on this host

	// ImageMultiTenant is MultiTenant for boxes with Spec.Image.
	ImageMultiTenant bool
}

// Spec is what a box is created from.
type Spec struct {
	Name  string // unique among the boxes of Owner
	Owner string // the process that owns the box, by which Sweeper.Sweep finds it

	// Image is the root file system: a directory, or for microsandbox also an OCI archive or reference. If
	// it is empty, the driver's default is used.
	Image     string
	Workspace string // directory of the host that is /workspace in the box, writable
	// Views is a directory of the host in which this package keeps the files that show a program its tools. This
	// package adds mounts of them to Mounts, read-only and inside the workspace, unless Views is empty.
	Views    string
	Mounts   []Mount
	Env      []string // "NAME=value"; the complete environment of processes in the box
	MemoryMB int      // outer limit, if the driver has one; 0 for the driver's default
	CPUs     float64  // outer limit, if the driver has one; 0 for the driver's default
}

// Mount makes a directory of the host visible in a box.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Stats are the resources that all processes of a box use together.
type Stats struct {
	MemoryMB float64
	CPUMS    float64
}
