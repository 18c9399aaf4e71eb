package dirsync

import "os"

// IgnoreCase makes a folder behave as on a file system that ignores case.
func (f *Folder) IgnoreCase() { f.foldsCase = func(*os.Root) (bool, error) { return true, nil } }

// AfterScan calls fn between the scan of the directory and its comparison with a workspace that has paths that differ
// by case only.
func (f *Folder) AfterScan(fn func()) {
	f.foldsCase = func(*os.Root) (bool, error) {
		fn()
		return false, nil
	}
}
