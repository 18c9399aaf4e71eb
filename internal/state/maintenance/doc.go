// Package maintenance maintains the workspaces in an object store: garbage collection ([CollectGarbage]), checks
// ([Check]) and repair ([Repair]).
package maintenance
