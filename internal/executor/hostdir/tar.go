package hostdir

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
)

// Tar writes the directories, files and symbolic links below dir, ordered by name. change may modify each header.
// Devices, sockets and pipes are left out. The caller closes w.
func Tar(w *tar.Writer, dir string, change func(*tar.Header)) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		return tarEntry(w, root, path, change)
	})
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
