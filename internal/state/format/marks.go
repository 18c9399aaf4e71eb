package format

import "time"

// Marks is the object in which a run of garbage collection lists the objects that a later run may remove.
type Marks struct {
	Time time.Time `json:"time"` // when the run began
	Keys []string  `json:"keys"`
}

// MarksPrefix is the prefix of the keys of a tenant's marks. The key HEAD below it is that of the schedule of garbage
// collection.
func MarksPrefix(tenant string) string { return tenant + "/gc/" }
