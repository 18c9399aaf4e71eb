// Package names defines the grammars of names that are used throughout the fleet.
package names

import (
	"fmt"
	"regexp"
)

// SlugPattern is the grammar for names of tenants, workspaces, sessions and task pools.
const SlugPattern = `^[a-z0-9][a-z0-9-]{0,62}$`

var (
	slug   = regexp.MustCompile(SlugPattern)
	taskID = regexp.MustCompile(`^[a-z2-7]{26}$`)
)

// IsSlug reports whether s may name a tenant, workspace, session or task pool.
func IsSlug(s string) bool { return slug.MatchString(s) }

// CheckSlug returns an error that quotes s and SlugPattern unless s is a slug.
func CheckSlug(s string) error {
	if !IsSlug(s) {
		return fmt.Errorf("%.80q is not of the form %s", s, SlugPattern)
	}
	return nil
}

// IsTaskID reports whether s has the form of a task id: 26 characters of lower-case base32.
func IsTaskID(s string) bool { return taskID.MatchString(s) }
