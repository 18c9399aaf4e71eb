package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/codefleet/codefleet/internal/errcode"
)

// explainFileError explains an error of a local file or directory. If another path can succeed, it returns a usage
// error; otherwise, as on a full disk, it returns ExitFailed. It returns errors that do not concern files unchanged.
func explainFileError(err error) error {
	_, ofCall := errors.AsType[*os.SyscallError](err)
	_, ofNetwork := errors.AsType[*net.OpError](err)
	if !isPathError(err) && (!ofCall || ofNetwork) {
		return err
	}
	for _, wrongPath := range []error{
		fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid, syscall.ENOTDIR, syscall.EISDIR,
		syscall.ENAMETOOLONG, syscall.ELOOP, syscall.EROFS,
	} {
		if errors.Is(err, wrongPath) {
			return usage("%v", err)
		}
	}
	f := &failure{code: errcode.ExitFailed, message: inWords(err)}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		f.hint = "free space, then the same command again"
	}
	return f
}

// pathError is what is wrong with a path that the user gave.
type pathError string

func (e pathError) Error() string { return string(e) }

// reasonOf returns what is wrong with the path of an error, without the path, for a caller that names it. It returns
// other errors unchanged.
func reasonOf(err error) error {
	switch {
	case !isPathError(err):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return pathError("no such file")
	case errors.Is(err, fs.ErrPermission):
		return pathError("permission denied")
	case errors.Is(err, syscall.EISDIR):
		return pathError("is a directory")
	}
	return err
}

// inWords returns the text of an error. If a path is wrong, it replaces Go's text, which names the system call.
func inWords(err error) string {
	e, ok := errors.AsType[*fs.PathError](err)
	if _, wrong := errors.AsType[pathError](reasonOf(err)); !ok || !wrong {
		return err.Error()
	}
	return strings.Replace(err.Error(), e.Error(), e.Path+": "+reasonOf(err).Error(), 1)
}

// isPathError reports whether err names a local file. Errors of the network do not.
func isPathError(err error) bool {
	_, ofPath := errors.AsType[*fs.PathError](err)
	_, ofLink := errors.AsType[*os.LinkError](err)
	return ofPath || ofLink
}
