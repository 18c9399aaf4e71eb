// Package tree makes local directories equal to versions of workspaces, and finds what changed in them.
//
// A [Dir] is one directory. Its files may have been written by hostile programs: they are reached through [os.Root]
// only, and no symbolic link is followed out of the directory. The package knows neither commits nor HEADs.
package tree
