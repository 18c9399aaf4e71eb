package dirsync

import "os"

// IgnoreCase makes a folder behave as on a file system that ignores case.
func (f *Folder) IgnoreCase() { f.foldsCase = func(*os.Root) (bool, error) { return true, nil } }
