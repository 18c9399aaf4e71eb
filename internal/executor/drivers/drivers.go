// Package drivers is the table of sandbox drivers: their names and how strongly they isolate. It has no
// code of the drivers, so that the packages of settings can read it.
package drivers

import "slices"

// Names of drivers, as in execution.sandbox_type, in executor.Info and as tiers in min_tier.
const (
	GVisor       = "gvisor"
	Microsandbox = "microsandbox"
)

// Tiers returns the names of all drivers, the one that isolates most weakly first. schemas/task.v1.json
// and schemas.Task list them, too.
func Tiers() []string { return []string{GVisor, Microsandbox} }

// TierSatisfies reports whether a host with the tier have may run what requires at least the tier want. An
// empty want requires nothing. An unknown tier satisfies nothing and is satisfied by none.
func TierSatisfies(have, want string) bool {
	tiers := Tiers()
	wanted := slices.Index(tiers, want)
	return want == "" || wanted >= 0 && slices.Index(tiers, have) >= wanted
}
