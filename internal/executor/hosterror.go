package executor

import "errors"

// Reason is a code for why a driver cannot create boxes on a host. It is used as a metric label.
type Reason string

// Reasons of a [HostError].
const (
	ReasonEngineMissing    Reason = "engine_missing"       // the engine is not installed
	ReasonEngineOld        Reason = "engine_old"           // the engine is older than the driver supports
	ReasonEngineCrashed    Reason = "engine_crashed"       // the engine crashes
	ReasonNoVirtualisation Reason = "no_virtualisation"    // hardware virtualisation is missing or does not work
	ReasonImageMissing     Reason = "image_missing"        // the image does not exist or cannot be fetched
	ReasonImageTooLarge    Reason = "image_too_large"      // the image exceeds the limit
	ReasonImageNoPython    Reason = "image_without_python" // the image has no Python, or one that is too old
	ReasonImageBroken      Reason = "image_broken"         // the image cannot be read
	ReasonDiskFull         Reason = "disk_full"            // the host's disk has no space for another box
	ReasonRequirements     Reason = "requirements_failed"  // the packages of a requirements file cannot be installed
	ReasonPreload          Reason = "preload_failed"       // a module of a preload list cannot be imported
	ReasonBootFailed       Reason = "boot_failed"          // any other reason
)

// HostError is an error that an operator must correct, on the host or in the settings.
type HostError struct {
	Reason Reason
	Err    error
	Fix    string // what to do; may be empty
}

func (e *HostError) Error() string {
	if e.Fix == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + "; " + e.Fix
}

func (e *HostError) Unwrap() error { return e.Err }

// ReasonOf returns the reason of the first HostError in err's tree, ReasonBootFailed for any other error,
// and an empty string for nil.
func ReasonOf(err error) Reason {
	if err == nil {
		return ""
	}
	if h, ok := errors.AsType[*HostError](err); ok {
		return h.Reason
	}
	return ReasonBootFailed
}
