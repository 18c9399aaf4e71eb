package schemas

import "time"

// Identity is how the fleet identifies the caller of a request.
type Identity struct {
	Name   string   `json:"name"`   // the token's name, as in the fleet's logs
	Tenant string   `json:"tenant"` // empty for an operator without a tenant
	Scopes []string `json:"scopes"` // see the constants ScopeSubmit to ScopeOperator
	// Privacy is the tenant's setting privacy.mode: egress or broker; empty if it is off.
	Privacy string `json:"privacy,omitempty"`
}

// Commit is one version of a workspace.
type Commit struct {
	Generation int64     `json:"generation"`
	Commit     string    `json:"commit"` // a random id
	Time       time.Time `json:"time"`
	TaskID     string    `json:"task_id,omitempty"` // the task that made the commit; empty for other commits
	Attempt    int       `json:"attempt,omitempty"`
	Message    string    `json:"message,omitempty"`
	Changed    []string  `json:"changed"`       // the first 100 changed paths
	Total      int       `json:"changed_total"` // number of changed paths
	Conflicts  []string  `json:"conflicts"`     // paths that two commits changed; both versions are kept
	NoChange   bool      `json:"no_change"`     // nothing has changed, so no commit was made
}

// CheckOptions specify how much of a workspace a check reads.
type CheckOptions struct {
	ReadData bool `json:"read_data,omitempty"` // verify contents in addition to manifests and the sizes of packs
	// With ReadData and a positive Of, the packs are divided into Of parts of about the same size, and the check reads
	// only part number Part, from 1.
	Part int `json:"part,omitempty"`
	Of   int `json:"of,omitempty"`
}

// CheckReport is the result of checking a workspace.
type CheckReport struct {
	Versions int      `json:"versions"`
	Packs    int      `json:"packs"`
	Read     int      `json:"read"`     // packs whose content was verified
	Problems []string `json:"problems"` // empty if the workspace is not damaged
	Lost     []string `json:"lost"`     // paths of the newest version that cannot be read
}

// RepairOptions specify how much of a workspace a repair reads, and whether it commits.
type RepairOptions struct {
	ReadData bool `json:"read_data,omitempty"` // verify all contents in addition to the sizes of packs
	DryRun   bool `json:"dry_run,omitempty"`   // do not commit
}

// LostPath is a path whose content is lost.
type LostPath struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Older int64  `json:"older,omitempty"` // the newest generation with readable content of the path; 0 if unknown
}

// RepairReport is the result of repairing a workspace.
type RepairReport struct {
	Commit          Commit     `json:"commit"`    // NoChange is set if the newest version is not damaged
	Problems        []string   `json:"problems"`  // damaged objects
	Lost            []LostPath `json:"lost"`      // paths that the new version does not have
	LostGenerations []int64    `json:"unknown"`   // generations whose changes are lost
	Recovered       []string   `json:"recovered"` // files with recovered content whose paths are lost
}
