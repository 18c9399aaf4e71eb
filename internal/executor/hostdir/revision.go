package hostdir

// Revision identifies what is stored on a disk that NewDisk made. The zero value is the revision of no disk.
type Revision struct {
	freeBlocks, freeFiles uint64
	sectors               uint64 // written since the disk was attached; 0 if they were not read
}

// SameAs reports whether nothing was written to the disk between the calls of ReadRevision that returned r and last.
// It may return false although nothing was written.
func (r Revision) SameAs(last Revision) bool { return r == last && r.sectors != 0 }
