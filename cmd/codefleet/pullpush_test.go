package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
)

// TestExplainFileError checks that an error that another path avoids is a usage error, and that a full disk is not one.
func TestExplainFileError(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, errcode.ExitFailed},
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.EDQUOT}, errcode.ExitFailed},
		{&fs.PathError{Op: "read", Path: "x", Err: syscall.EIO}, errcode.ExitFailed},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}, errcode.ExitFailed},
		{&os.LinkError{Op: "rename", Old: "x", New: "y", Err: syscall.ENOSPC}, errcode.ExitFailed},
		{os.NewSyscallError("fsync", syscall.EIO), errcode.ExitFailed},
		{&fs.PathError{Op: "mkdir", Path: "x", Err: syscall.EACCES}, errcode.ExitUsage},
		{&fs.PathError{Op: "mkdir", Path: "x", Err: syscall.ENOTDIR}, errcode.ExitUsage},
		{&fs.PathError{Op: "mkdir", Path: "x", Err: syscall.EROFS}, errcode.ExitUsage},
		{&os.LinkError{Op: "rename", Old: "x", New: "y", Err: syscall.EEXIST}, errcode.ExitUsage},
	} {
		for _, err := range []error{c.err, errors.Join(errors.New("pull"), c.err)} {
			if f := explain(markCall(explainSyncError(err, ""))); f.code != c.code {
				t.Errorf("%v: exit code %d, %s, want %d", err, f.code, f.Error(), c.code)
			}
		}
	}
	local := &fs.PathError{Op: "mkdir", Path: "x", Err: syscall.EACCES}
	if f := explain(markCall(local)); f.code != errcode.ExitUsage {
		t.Errorf("%v in a command that uses the fleet: exit code %d, %s, want %d",
			local, f.code, f.Error(), errcode.ExitUsage)
	}
	remote := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, err := range []error{remote, explainSyncError(remote, "")} {
		if f := explain(markCall(err)); f.code != errcode.ExitUnreachable {
			t.Errorf("%v: exit code %d, %s, want %d", remote, f.code, f.Error(), errcode.ExitUnreachable)
		}
	}
	if err := errors.New("no response"); !errors.Is(explainFileError(err), err) {
		t.Error("an error of no file is not returned unchanged")
	}
}
