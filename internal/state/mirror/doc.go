// Package mirror copies the files of each workspace's newest version to ordinary objects, for readers that know nothing
// of workspaces. It updates the mirror after each commit; the fleet never reads the files of a mirror:
//
//	<tenant>/<ws>/files/<path>  content of a file
//	<tenant>/<ws>/mirror.json   the mirror's generation, and the update that is changing it
//
// During an update, the mirror's files may belong to several generations, which mirror.json lists. If an update is
// interrupted, the next one completes the mirror.
package mirror
