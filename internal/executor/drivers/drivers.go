// Package drivers lists the sandbox drivers and how strongly they isolate. It does not import the drivers, so
// that the settings packages can use it.
package drivers

import "slices"

// Names of drivers in execution.sandbox_type and executor.Info. They are also the tiers in min_tier.
const (
	GVisor       = "gvisor"
	Microsandbox = "microsandbox"
)

// Tiers returns the names of all drivers, ordered from the weakest isolation to the strongest.
// schemas/task.v1.json and schemas.Task also list them.
func Tiers() []string { return []string{GVisor, Microsandbox} }

// TierSatisfies reports whether a host whose tier is `have` may run tasks whose minimum is `want`. An empty `want`
// requires nothing. An unknown `want` is never satisfied; an unknown `have` satisfies only an empty `want`.
func TierSatisfies(have, want string) bool {
	tiers := Tiers()
	wanted := slices.Index(tiers, want)
	return want == "" || wanted >= 0 && slices.Index(tiers, have) >= wanted
}
