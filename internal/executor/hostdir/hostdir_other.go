//go:build !linux

package hostdir

import (
	"context"
	"errors"
	"fmt"
)

// Mounts returns no mount points on this system.
func Mounts(string) ([]string, error) { return nil, nil }

// Disks returns no disks on this system.
func Disks() ([]Disk, error) { return nil, nil }

// UnmountBelow does nothing on this system.
func UnmountBelow(string) error { return nil }

// Remove deletes dir.
func Remove(dir string) error { return removeAll(dir) }

// NewDisk is not supported on this system.
func NewDisk(context.Context, string, string, int64, int, int) error {
	return fmt.Errorf("make disk: %w", errors.ErrUnsupported)
}

// Free is not supported on this system.
func Free(string) (int64, error) { return 0, fmt.Errorf("read free space: %w", errors.ErrUnsupported) }

// Flush is not supported on this system.
func Flush(string) error { return fmt.Errorf("flush: %w", errors.ErrUnsupported) }

// ReadRevision is not supported on this system.
func ReadRevision(string, Revision) (Revision, error) {
	return Revision{}, fmt.Errorf("read the revision of a disk: %w", errors.ErrUnsupported)
}

// FindMkfs is not supported on this system.
func FindMkfs() (string, error) { return "", fmt.Errorf("find mkfs.ext4: %w", errors.ErrUnsupported) }
