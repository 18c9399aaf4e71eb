package hostdir

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tar writes the directories, files and symbolic links below dir, ordered by name. change may modify each header.
// Devices, sockets and pipes are left out. The caller closes w.
func Tar(w *tar.Writer, dir string, change func(*tar.Header)) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return tarDir(w, root, ".", change)
}

// tarDir writes what is below a directory. fs.WalkDir would refuse directories whose names are not UTF-8.
func tarDir(w *tar.Writer, root *os.Root, dir string, change func(*tar.Header)) error {
	file, err := root.Open(dir)
	if err != nil {
		return err
	}
	entries, err := file.ReadDir(-1)
	file.Close()
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if err := tarEntry(w, root, path, change); err != nil {
			return err
		}
		if entry.IsDir() {
			if err := tarDir(w, root, path, change); err != nil {
				return err
			}
		}
	}
	return nil
}

func tarEntry(w *tar.Writer, root *os.Root, path string, change func(*tar.Header)) error {
	info, err := root.Lstat(path)
	if err != nil {
		return err
	}
	link := ""
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		if link, err = root.Readlink(path); err != nil {
			return err
		}
	case !mode.IsDir() && !mode.IsRegular():
		return nil
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name = path
	if info.IsDir() {
		header.Name += "/"
	}
	change(header)
	if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := root.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.CopyN(w, file, info.Size())
	return err
}
