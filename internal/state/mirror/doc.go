// Package mirror keeps the files of each workspace's newest version as ordinary objects, for programs that know nothing
// of workspaces. It follows after commits, and nothing is ever read from it:
//
//	<tenant>/<ws>/files/<path>  content of a file
//	<tenant>/<ws>/mirror.json   its generation, and who is changing it
//
// During an update the mirror is between generations, and mirror.json lists those that its files may be of. The next
// update after one that was interrupted completes the mirror.
package mirror
