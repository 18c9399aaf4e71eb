// Package maintenance keeps the object store of workspaces in order: garbage collection ([CollectGarbage]), checks
// ([Check]) and repair ([Repair]).
package maintenance
