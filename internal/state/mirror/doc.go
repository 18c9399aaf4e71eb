// Package mirror keeps the files of each workspace's newest version as ordinary objects, for readers that know nothing
// of workspaces. It is updated after each commit, and the fleet never reads from it:
//
//	<tenant>/<ws>/files/<path>  content of a file
//	<tenant>/<ws>/mirror.json   its generation, and the update that is changing it
//
// During an update the mirror is between generations, and mirror.json lists those that files may have content of. If an
// update is interrupted, the next one completes the mirror.
package mirror
