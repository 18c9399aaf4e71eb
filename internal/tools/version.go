package tools

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// Version is one immutable state of the catalogue: modules, definitions and approvals. Equal files
// give an equal ID, on every machine.
type Version struct {
	ID      string // 26 characters of base32, the digest of the archive before compression
	Archive []byte // tar, gzip
}

const (
	maxArchive = 256 << 20

	// No tenant's name begins with an underscore, and its objects' keys begin with its name.
	keyVersions = "_catalogue/versions/"
	keyTenants  = "_catalogue/tenants/"
	keyCurrent  = "_catalogue/HEAD"
)

func versionKey(id string) string { return keyVersions + id + ".tar.gz" }

func overlayKey(tenant, id string) string { return keyTenants + tenant + "/" + id + ".tar.gz" }

var versionID = regexp.MustCompile(`^[a-z2-7]{26}$`)

// Pack makes a version of the catalogue as it is now. Broken files are left out; a server without
// an __init__.py gets one, so that `from servers.mine import f` is the function.
func (c *Catalogue) Pack(ctx context.Context) (Version, *Listing, error) {
	listing, err := c.Read(ctx)
	if err != nil {
		return Version{}, nil, err
	}
	files, err := c.filesToPack(listing)
	if err != nil {
		return Version{}, nil, fmt.Errorf("pack catalogue %s: %w", c.dir, err)
	}
	v, err := pack(files)
	return v, listing, err
}

func (c *Catalogue) filesToPack(listing *Listing) (map[string][]byte, error) {
	files := map[string][]byte{"servers/__init__.py": Support}
	root, err := os.OpenRoot(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	broken := map[string]bool{}
	for _, b := range listing.Broken {
		broken[b.Path] = true
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
		case e.IsDir() && (strings.Count(name, "/") > 0 || !isIdentifier(name) || strings.HasPrefix(name, "_")):
			return fs.SkipDir
		case e.Type().IsRegular() && isPackable(name) && !broken[name]:
			if files["servers/"+name], err = fs.ReadFile(root.FS(), name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	files["servers/__init__.py"] = Support
	addInits(files, listing)
	return files, nil
}

func isPackable(name string) bool {
	if name == ApprovalsFile {
		return true
	}
	ext := path.Ext(name)
	return strings.Contains(name, "/") && !strings.HasPrefix(path.Base(name), ".") && (ext == ".py" || ext == ".json" || ext == ".md")
}

func addInits(files map[string][]byte, listing *Listing) {
	exports := map[string][]Export{}
	for _, t := range listing.Tools {
		dir, file := path.Split(t.Path)
		exports[dir] = append(exports[dir], Export{strings.TrimSuffix(file, ".py"), t.Function})
	}
	for dir, list := range exports {
		name := "servers/" + dir + "__init__.py"
		if was, ok := files[name]; !ok || bytes.HasPrefix(was, []byte(packageMark)) {
			files[name] = PackageInit("Tools of "+strings.TrimSuffix(dir, "/")+".", list)
		}
	}
}

func pack(files map[string][]byte) (Version, error) {
	var tarball bytes.Buffer
	tw := tar.NewWriter(&tarball)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := tw.WriteHeader(h); err != nil {
			return Version{}, err
		}
		if _, err := tw.Write(files[name]); err != nil {
			return Version{}, err
		}
	}
	if err := tw.Close(); err != nil {
		return Version{}, err
	}
	if tarball.Len() > maxArchive {
		return Version{}, fmt.Errorf("pack catalogue: %d bytes are more than %d", tarball.Len(), maxArchive)
	}
	var out bytes.Buffer
	zw := gzip.NewWriter(&out)
	if _, err := zw.Write(tarball.Bytes()); err != nil {
		return Version{}, err
	}
	if err := zw.Close(); err != nil {
		return Version{}, err
	}
	return Version{ID: versionIDOf(tarball.Bytes()), Archive: out.Bytes()}, nil
}

func versionIDOf(tarball []byte) string {
	sum := sha256.Sum256(tarball)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}

// Publish stores a version and makes it the current one. It is idempotent; of two publishers the
// later wins, and both versions stay.
func Publish(ctx context.Context, bucket objects.Objects, v Version) error {
	if err := bucket.Put(ctx, versionKey(v.ID), v.Archive, objects.Sum(v.Archive)); err != nil {
		return fmt.Errorf("publish catalogue %s: %w", v.ID, err)
	}
	if err := objects.Replace(ctx, bucket, keyCurrent, []byte(v.ID)); err != nil {
		return fmt.Errorf("make catalogue %s the current one: %w", v.ID, err)
	}
	return nil
}

// Republish makes a version that was published before the current one again, and returns its tools.
func Republish(ctx context.Context, bucket objects.Objects, id string) (*Listing, error) {
	if !versionID.MatchString(id) {
		return nil, fmt.Errorf("publish catalogue: %q is no version: %w", printableName(id), fs.ErrNotExist)
	}
	archive, err := bucket.Get(ctx, versionKey(id), objects.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("fetch catalogue %s: %w", id, err)
	}
	files, err := Version{ID: id, Archive: archive.Data}.files()
	if err != nil {
		return nil, fmt.Errorf("fetch catalogue %s: %w", id, err)
	}
	if err := objects.Replace(ctx, bucket, keyCurrent, []byte(id)); err != nil {
		return nil, fmt.Errorf("make catalogue %s the current one: %w", id, err)
	}
	return readFiles(files)
}

// Current returns the id of the version that new tasks pin; fs.ErrNotExist when none was published.
func Current(ctx context.Context, bucket objects.Objects) (string, error) {
	current, err := bucket.Get(ctx, keyCurrent, objects.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("current catalogue: %w", err)
	}
	id := strings.TrimSpace(string(current.Data))
	if !versionID.MatchString(id) {
		return "", fmt.Errorf("current catalogue: %q is no version", printableName(id))
	}
	return id, nil
}

// Fetch makes the version a directory of this host, dir/<id>/servers/…, and returns dir/<id>. What
// is there already is not fetched again. The directory appears whole or not at all.
func Fetch(ctx context.Context, bucket objects.Objects, id, dir string) (string, error) {
	if !versionID.MatchString(id) {
		return "", fmt.Errorf("fetch catalogue: %q is no version", printableName(id))
	}
	target := filepath.Join(dir, id)
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	archive, err := bucket.Get(ctx, versionKey(id), objects.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("fetch catalogue %s: %w", id, err)
	}
	if err := Unpack(Version{ID: id, Archive: archive.Data}, dir); err != nil {
		return "", fmt.Errorf("fetch catalogue %s: %w", id, err)
	}
	return target, nil
}

// Unpack writes dir/<id> from the version's archive, after it has checked that it is the version's.
func Unpack(v Version, dir string) error {
	files, err := v.files()
	if err != nil {
		return err
	}
	return writeTree(dir, v.ID, files)
}

// files are those of the archive, by their paths below servers/.
func (v Version) files() (map[string][]byte, error) {
	zr, err := gzip.NewReader(bytes.NewReader(v.Archive))
	if err != nil {
		return nil, err
	}
	tarball, err := io.ReadAll(io.LimitReader(zr, maxArchive+1))
	if err != nil {
		return nil, err
	}
	if len(tarball) > maxArchive || versionIDOf(tarball) != v.ID {
		return nil, fmt.Errorf("the archive is not the one of version %s", v.ID)
	}
	files := map[string][]byte{}
	tr := tar.NewReader(bytes.NewReader(tarball))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		name, ok := strings.CutPrefix(h.Name, "servers/")
		if h.Typeflag != tar.TypeReg || !fs.ValidPath(h.Name) || !ok {
			return nil, fmt.Errorf("%q is no file of a catalogue", printableName(h.Name))
		}
		if files[name], err = io.ReadAll(tr); err != nil {
			return nil, err
		}
	}
}

// packOverlay makes a version of files by their paths below servers/.
func packOverlay(files map[string][]byte) (Version, error) {
	full := make(map[string][]byte, len(files))
	for name, data := range files {
		full["servers/"+name] = data
	}
	return pack(full)
}

// writeTree makes dir/<id>/servers of the files: whole, or not at all.
func writeTree(dir, id string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // gone by then, when all went well
	if err := write(tmp, files); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	target := filepath.Join(dir, id)
	err = os.Rename(tmp, target)
	if _, there := os.Stat(target); err != nil && there == nil {
		return nil // somebody else was faster, with the same content
	}
	return err
}

func write(dir string, files map[string][]byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	made := map[string]bool{}
	for name, data := range files {
		name = "servers/" + name
		if parent := path.Dir(name); !made[parent] {
			if err := root.MkdirAll(parent, 0o755); err != nil {
				return err
			}
			made[parent] = true
		}
		if err := root.WriteFile(name, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
