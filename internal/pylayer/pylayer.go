// Package pylayer installs a requirements file into a directory of Python packages, a package layer, which boxes
// mount read-only. pip builds the layer once, on the worker's host; the layer is named by the hash of its inputs and
// never changes. pip only unpacks wheels, and requirements that it would build are refused, so that no code of a
// package runs on the host. The key function is Build.
package pylayer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/text"
)

// Options configure Build.
type Options struct {
	Python       string  // interpreter of the host, with pip
	Target       *Target // the interpreter in boxes; default Python
	Requirements string  // file in pip's format
	Dir          string  // directory of the layers on this host

	// Objects shares layers between hosts, unless it is nil. Its errors are only logged.
	Objects objects.Objects
	Log     *slog.Logger // default discards
}

// Target is an interpreter other than the host's, for which pip selects wheels. But pip evaluates environment markers,
// such as python_version, for the host's interpreter: those of the requirements file and those of the dependencies that
// wheels name.
type Target struct {
	Version   string   // such as 3.12.1
	Platforms []string // platform tags of wheels, preferred first, such as manylinux_2_28_x86_64
}

// Layer is a directory of packages.
type Layer struct {
	Dir   string
	Hash  string   // hash of the requirements file and the interpreter
	Names []string // distributions with versions, such as "numpy 2.1.0"
	From  string   // where the layer was found or built: host, bucket or pip
}

const (
	buildTime = 10 * time.Minute // limit for a run of pip
	maxOutput = 2000             // bytes of pip's output in an error
	maxFile   = 1 << 20          // bytes of a requirements file
)

// Build returns the layer of a requirements file, and builds it unless it exists. Several processes may call it at
// once. The error contains the end of pip's output. After an error, no part of a layer is left in Dir.
func Build(ctx context.Context, o Options) (Layer, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	l, err := build(ctx, o)
	if err != nil {
		return Layer{}, fmt.Errorf("build package layer of %s: %w", o.Requirements, err)
	}
	return l, nil
}

func build(ctx context.Context, o Options) (Layer, error) {
	hash, err := key(ctx, o)
	if err != nil {
		return Layer{}, err
	}
	dir, from := filepath.Join(o.Dir, hash), fromHost
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if from, err = o.obtain(ctx, hash, dir); err != nil {
			return Layer{}, err
		}
	} else if err != nil {
		return Layer{}, err
	}
	names, err := distributions(dir)
	return Layer{Dir: dir, Hash: hash, Names: names, From: from}, err
}

// key checks the requirements file, and returns the hash of a layer's inputs: the file, and the interpreter, whose
// version and platform determine the wheels.
func key(ctx context.Context, o Options) (string, error) {
	info, err := os.Stat(o.Requirements)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", fmt.Errorf("not a regular file of at most %d bytes", maxFile)
	}
	requirements, err := os.ReadFile(o.Requirements)
	if err != nil {
		return "", err
	}
	if err := checkWheelsOnly(requirements); err != nil {
		return "", err
	}
	version, err := o.interpreter(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "codefleet packages 1\n%s%d\n", version, len(requirements))
	sum.Write(requirements)
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// interpreter returns lines with the version and platform of the host's interpreter and of the target.
func (o Options) interpreter(ctx context.Context) ([]byte, error) {
	version, err := exec.CommandContext(ctx, o.Python, "-I", "-S", "-c",
		"import sys, sysconfig; print(sys.implementation.cache_tag, sysconfig.get_platform())").Output()
	if err != nil {
		return nil, fmt.Errorf("get the version of %s: %w", o.Python, err)
	}
	if t := o.Target; t != nil {
		version = fmt.Appendf(version, "cp%s %s\n", t.minor(), strings.Join(t.Platforms, " "))
	}
	return version, nil
}

// minor returns the first two parts of the version, such as 3.12. They determine which wheels fit.
func (t *Target) minor() string {
	major, rest, _ := strings.Cut(t.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major + "." + minor
}

// args returns the options that make pip select wheels for the target.
func (t *Target) args() []string {
	if t == nil {
		return nil
	}
	args := []string{"--implementation", "cp", "--python-version", t.minor()}
	for _, p := range t.Platforms {
		args = append(args, "--platform", p)
	}
	return args
}

// Values of Layer.From.
const (
	fromHost   = "host"
	fromBucket = "bucket"
	fromPip    = "pip"
)

// obtain downloads a layer from the bucket, or builds it with pip and uploads it.
func (o Options) obtain(ctx context.Context, hash, dir string) (from string, err error) {
	if o.Objects != nil {
		err := place(ctx, o, dir, func(temp string) error { return fetch(ctx, o.Objects, hash, temp) })
		if err == nil {
			return fromBucket, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			o.Log.WarnContext(ctx, "download of package layer failed", "layer", hash, "error", err)
		}
	}
	if err := place(ctx, o, dir, func(temp string) error { return pip(ctx, o, temp) }); err != nil {
		return "", err
	}
	if o.Objects != nil {
		if err := store(ctx, o.Objects, hash, dir); err != nil {
			o.Log.WarnContext(ctx, "upload of package layer failed", "layer", hash, "error", err)
		}
	}
	return fromPip, nil
}

// place creates dir, read-only, with the files that fill writes into a temporary directory.
func place(ctx context.Context, o Options, dir string, fill func(temp string) error) error {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(o.Dir, 0o755); err != nil { // programs in boxes read files below it
		return err
	}
	return hostdir.CreateOnce(dir, "new-", func(temp string) error {
		if err := cmp.Or(fill(temp), context.Cause(ctx)); err != nil {
			return err
		}
		return makeReadOnly(temp)
	})
}

var errBuildTime = fmt.Errorf("pip did not end within %v", buildTime)

// pip installs the requirements file into the directory target. It cannot install packages that are not wheels.
func pip(ctx context.Context, o Options, target string) error {
	ctx, stop := context.WithTimeoutCause(ctx, buildTime, errBuildTime)
	defer stop()
	requirements, err := filepath.Abs(o.Requirements)
	if err != nil {
		return err
	}
	args := []string{
		"-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-cache-dir",
		"--no-compile", "--quiet", "--only-binary=:all:", "--target", target, "--requirement", requirements,
	}
	c := exec.CommandContext(ctx, o.Python, append(args, o.Target.args()...)...)
	c.Dir = filepath.Dir(requirements) // relative paths in the file are relative to it
	c.WaitDelay = time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err = c.Run()
	output := text.TruncateStart(strings.TrimSpace(out.String()), maxOutput)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errBuildTime):
		return fmt.Errorf("%w: %s", errBuildTime, output)
	case ctx.Err() != nil:
		return fmt.Errorf("run pip: %w: %s", ctx.Err(), output)
	case strings.Contains(output, "No module named pip"):
		return fmt.Errorf("%s has no pip; install it: apt-get install python3-pip", o.Python)
	}
	return fmt.Errorf("run pip: %w: %s", err, output)
}

// makeReadOnly lets all users read the files below dir, and no user write to them. It refuses symbolic links without a
// target in dir, because they would have none, or a different one, inside a box. It also refuses pipes, sockets and
// devices.
func makeReadOnly(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			if _, err := root.Stat(path); err != nil {
				return fmt.Errorf("symbolic link %s has no target within the layer: %w", path, err)
			}
			return nil
		case d.IsDir():
			return root.Chmod(path, 0o755)
		case d.Type().IsRegular():
			info, err := d.Info()
			if err != nil {
				return err
			}
			return root.Chmod(path, 0o444|info.Mode().Perm()&0o111)
		}
		return fmt.Errorf("%s is neither a file nor a directory", path)
	})
}

// distributions lists the distributions that are installed in a directory, with versions.
func distributions(dir string) ([]string, error) {
	found, err := fs.Glob(os.DirFS(dir), "*.dist-info")
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(found))
	for _, path := range found {
		name, version, _ := strings.Cut(strings.TrimSuffix(path, ".dist-info"), "-")
		names = append(names, strings.TrimSpace(name+" "+version))
	}
	slices.Sort(names)
	return names, nil
}
