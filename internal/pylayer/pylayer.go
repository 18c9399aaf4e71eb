// Package pylayer turns a requirements file into a directory of Python packages that boxes see
// read-only: built once by pip on the worker's host, named by the hash of what went into it, and never
// changed after. Only wheels are taken, which pip unpacks: nothing of a package runs on the host. Its
// key function is Build.
package pylayer

import (
	"bytes"
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

	"github.com/codefleet/codefleet/internal/objects"
)

// Options of Build.
type Options struct {
	Python       string  // interpreter of the host that has pip
	Target       *Target // the interpreter of boxes; nil: Python itself
	Requirements string  // file, in the format of pip
	Dir          string  // where layers are kept on this host

	// Objects is where layers are kept for all hosts; nil: nowhere.
	Objects objects.Objects
	Log     *slog.Logger // hears what went wrong with Objects, which nobody has to mind; nil: nobody
}

// Target is an interpreter that is not this host's, which packages are chosen for. What a requirements
// file says of python_version and the like (markers) is still answered by the host's: so does pip.
type Target struct {
	Version   string   // such as 3.12.1
	Platforms []string // whose wheels it takes, best first, such as manylinux_2_28_x86_64
}

// Layer is a directory of packages.
type Layer struct {
	Dir   string
	Hash  string   // of the requirements and the interpreter's version
	Names []string // of the distributions, with versions, as "numpy 2.1.0"
	From  string   // where it was had from: host, bucket or pip
}

const (
	buildTime = 10 * time.Minute
	saidBytes = 2000 // kept of what pip says when it fails
	maxFile   = 1 << 20
)

// Build returns the layer of a requirements file, which it builds unless it is there. Several
// processes may do so at once. An error says what pip said; nothing is left then.
func Build(ctx context.Context, o Options) (Layer, error) {
	l, err := build(ctx, o)
	if err != nil {
		return Layer{}, fmt.Errorf("build the packages of %s: %w", o.Requirements, err)
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
		if from, err = o.have(ctx, hash, dir); err != nil {
			return Layer{}, err
		}
	} else if err != nil {
		return Layer{}, err
	}
	names, err := distributions(dir)
	return Layer{Dir: dir, Hash: hash, Names: names, From: from}, err
}

// key hashes all that a layer is made from: the file as it is, and the interpreter, whose version and
// platform choose the wheels.
func key(ctx context.Context, o Options) (string, error) {
	info, err := os.Stat(o.Requirements)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", fmt.Errorf("not a file of at most %d bytes", maxFile)
	}
	text, err := os.ReadFile(o.Requirements)
	if err != nil {
		return "", err
	}
	version, err := o.interpreter(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "codefleet packages 1\n%s%d\n", version, len(text))
	sum.Write(text)
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// interpreter is what chooses the wheels, as a line.
func (o Options) interpreter(ctx context.Context) ([]byte, error) {
	if t := o.Target; t != nil {
		return fmt.Appendf(nil, "cp%s %s\n", t.minor(), strings.Join(t.Platforms, " ")), nil
	}
	version, err := exec.CommandContext(ctx, o.Python, "-I", "-S", "-c",
		"import sys, sysconfig; print(sys.implementation.cache_tag, sysconfig.get_platform())").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", o.Python, err)
	}
	return version, nil
}

// minor is the version as wheels have it, without its last part.
func (t *Target) minor() string {
	major, rest, _ := strings.Cut(t.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major + "." + minor
}

// args has pip choose wheels for the target.
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

// Where a layer was had from.
const (
	fromHost   = "host"
	fromBucket = "bucket"
	fromPip    = "pip"
)

// have gets a layer from the bucket, or has pip install it and puts it there.
func (o Options) have(ctx context.Context, hash, dir string) (from string, err error) {
	if o.Objects != nil {
		err := place(ctx, o, dir, func(temp string) error { return fetch(ctx, o.Objects, hash, temp) })
		if err == nil {
			return fromBucket, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			o.warn(ctx, "taken from the bucket", hash, err)
		}
	}
	if err := place(ctx, o, dir, func(temp string) error { return pip(ctx, o, temp) }); err != nil {
		return "", err
	}
	if o.Objects != nil {
		if err := store(ctx, o.Objects, hash, dir); err != nil {
			o.warn(ctx, "kept in the bucket", hash, err)
		}
	}
	return fromPip, nil
}

func (o Options) warn(ctx context.Context, step, hash string, err error) {
	if o.Log != nil {
		o.Log.WarnContext(ctx, "packages and the bucket", "failed", step, "packages", hash, "error", err)
	}
}

// place has a directory beside dir filled, which takes its place in one step.
func place(ctx context.Context, o Options, dir string, fill func(temp string) error) error {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(o.Dir, 0o755); err != nil { // programs of boxes read below
		return err
	}
	temp, err := os.MkdirTemp(o.Dir, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := fill(temp); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := readable(temp); err != nil {
		return err
	}
	err = os.Rename(temp, dir)
	if _, there := os.Stat(dir); err != nil && there == nil {
		return nil // somebody else was faster
	}
	return err
}

func pip(ctx context.Context, o Options, target string) error {
	ctx, stop := context.WithTimeout(ctx, buildTime)
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
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	err = c.Run()
	text := strings.TrimSpace(said.String())
	if len(text) > saidBytes {
		text = "…" + text[len(text)-saidBytes:]
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("pip did not end within %v: %s", buildTime, text)
	case strings.Contains(text, "No module named pip"):
		return fmt.Errorf("%s has no pip: apt-get install python3-pip", o.Python)
	}
	return fmt.Errorf("pip: %w: %s", err, text)
}

// readable lets every user read, and nobody write, what is below dir. Links that lead out of it are
// refused: they would mean something else inside a box.
func readable(dir string) error {
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
				return fmt.Errorf("%s is a link out of the packages: %w", path, err)
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

// distributions lists what is installed in a directory.
func distributions(dir string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*.dist-info"))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(found))
	for _, path := range found {
		name, version, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".dist-info"), "-")
		names = append(names, strings.TrimSpace(name+" "+version))
	}
	slices.Sort(names)
	return names, nil
}
