package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/opencontainers/image-spec/specs-go/v1"
)

// A source has the parts of an image by name: those of an archive, or the files of a layout.
type source interface {
	open(name string) (io.ReadCloser, error)
	manifest() (manifest, error)
	close() error
}

// manifest is what an image is made of.
type manifest struct {
	config []byte // its JSON
	layers []layer
}

// layer is one archive of files, and what it must be.
type layer struct {
	name   string // of the part
	diffID string // hash of it, not compressed
}

// parts opens a part by name.
type parts func(name string) (io.ReadCloser, error)

const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"
	dockerFile = "manifest.json"
)

func isLayout(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, layoutFile))
	return err == nil
}

func open(name string, info fs.FileInfo) (source, error) {
	if info.IsDir() {
		root, err := os.OpenRoot(name)
		return directory{root}, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: neither a file nor a directory", ErrBroken)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	a := &archive{file: file, found: map[string]*io.SectionReader{}}
	if err := a.scan(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: it is no archive of an image, as skopeo and docker save write it: %w", ErrBroken, err), file.Close())
	}
	return a, nil
}

// directory is an image in OCI's layout.
type directory struct{ root *os.Root }

func (d directory) open(name string) (io.ReadCloser, error) {
	info, err := d.root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, broken(name, err)
	}
	return d.root.Open(name)
}

func (d directory) manifest() (manifest, error) { return parts(d.open).layout() }
func (d directory) close() error                { return d.root.Close() }

// archive is an image in one file.
type archive struct {
	file  *os.File
	found map[string]*io.SectionReader
}

// maxParts is how many files an archive of an image may have.
const maxParts = 10_000

// scan notes where the files of the archive lie.
func (a *archive) scan() error {
	r := tar.NewReader(a.file)
	for range maxParts {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at, err := a.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if head.Typeflag == tar.TypeReg {
			a.found[path.Clean(head.Name)] = io.NewSectionReader(a.file, at, head.Size)
		}
	}
	return fmt.Errorf("more than %d files", maxParts)
}

func (a *archive) open(name string) (io.ReadCloser, error) {
	part := a.found[path.Clean(name)]
	if part == nil {
		return nil, broken(name, fs.ErrNotExist)
	}
	return io.NopCloser(io.NewSectionReader(part, 0, part.Size())), nil
}

func (a *archive) close() error { return a.file.Close() }

func (a *archive) manifest() (manifest, error) {
	if a.found[dockerFile] == nil {
		return parts(a.open).layout()
	}
	var images []struct {
		Config string
		Layers []string
	}
	if err := parts(a.open).json(dockerFile, &images); err != nil {
		return manifest{}, err
	}
	if len(images) != 1 {
		return manifest{}, fmt.Errorf("%w: it holds %d images, and one is expected", ErrBroken, len(images))
	}
	return parts(a.open).of(images[0].Config, images[0].Layers)
}

// layout reads an image in OCI's layout: the one that the index names, for this machine where it names
// several.
func (p parts) layout() (manifest, error) {
	name := indexFile
	for range 4 { // an index may name an index
		var index v1.Index
		if err := p.json(name, &index); err != nil {
			return manifest{}, err
		}
		chosen, err := choose(index.Manifests)
		if err != nil {
			return manifest{}, err
		}
		if name, err = blob(string(chosen.Digest)); err != nil {
			return manifest{}, err
		}
		if chosen.MediaType != v1.MediaTypeImageIndex && !strings.HasSuffix(chosen.MediaType, ".manifest.list.v2+json") {
			return p.image(name)
		}
	}
	return manifest{}, fmt.Errorf("%w: its indexes name each other", ErrBroken)
}

// choose takes the only image, or the first for this machine.
func choose(list []v1.Descriptor) (v1.Descriptor, error) {
	if len(list) == 1 {
		return list[0], nil
	}
	for _, d := range list {
		if d.Platform != nil && d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH {
			return d, nil
		}
	}
	return v1.Descriptor{}, fmt.Errorf("%w: none of its %d images is for linux/%s", ErrBroken, len(list), runtime.GOARCH)
}

func (p parts) image(name string) (manifest, error) {
	var m v1.Manifest
	if err := p.json(name, &m); err != nil {
		return manifest{}, err
	}
	config, err := blob(string(m.Config.Digest))
	if err != nil {
		return manifest{}, err
	}
	var layers []string
	for _, l := range m.Layers {
		name, err := blob(string(l.Digest))
		if err != nil {
			return manifest{}, err
		}
		layers = append(layers, name)
	}
	return p.of(config, layers)
}

// of reads the configuration of an image, which says what its layers must be.
func (p parts) of(configName string, layers []string) (manifest, error) {
	config, err := p.text(configName)
	if err != nil {
		return manifest{}, err
	}
	var image v1.Image
	if err := json.Unmarshal(config, &image); err != nil {
		return manifest{}, broken(configName, err)
	}
	if image.Architecture != "" && image.Architecture != runtime.GOARCH {
		return manifest{}, fmt.Errorf("%w: it is for %s, and this machine is %s", ErrBroken, image.Architecture, runtime.GOARCH)
	}
	ids := image.RootFS.DiffIDs
	if len(ids) != len(layers) || len(ids) == 0 {
		return manifest{}, fmt.Errorf("%w: it has %d layers, and hashes for %d", ErrBroken, len(layers), len(ids))
	}
	m := manifest{config: config}
	for i, name := range layers {
		m.layers = append(m.layers, layer{name: name, diffID: string(ids[i])})
	}
	return m, nil
}

// blob is where a layout has what a digest names.
func blob(digest string) (string, error) {
	algorithm, hash, ok := strings.Cut(digest, ":")
	if !ok || algorithm == "" || len(hash) < 32 || strings.ContainsAny(digest, "/.\\") {
		return "", fmt.Errorf("%w: %.100q is no digest", ErrBroken, digest)
	}
	return "blobs/" + algorithm + "/" + hash, nil
}

func (p parts) json(name string, into any) error {
	text, err := p.text(name)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return broken(name, err)
	}
	return nil
}

// text reads a part that is not large.
func (p parts) text(name string) ([]byte, error) {
	r, err := p(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("more than %d bytes", maxText)
	}
	if err != nil {
		return nil, broken(name, err)
	}
	return text, nil
}

func broken(name string, err error) error {
	if errors.Is(err, ErrBroken) {
		return err
	}
	return fmt.Errorf("%w: %.200s: %w", ErrBroken, name, err)
}
