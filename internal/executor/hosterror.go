package executor

import "errors"

// Reason is why a driver cannot make boxes on a host: one of a few words, fit for a metric.
type Reason string

// Reasons of a [HostError].
const (
	ReasonEngineMissing Reason = "engine_missing"       // its program is not there
	ReasonEngineOld     Reason = "engine_old"           // its program is older than what we speak
	ReasonEngineCrashed Reason = "engine_crashed"       // its program breaks
	ReasonNoVirtual     Reason = "no_virtualisation"    // the host has no hardware virtualisation that boots
	ReasonImageMissing  Reason = "image_missing"        // the image is not there and cannot be fetched
	ReasonImageTooLarge Reason = "image_too_large"      // the image is larger than boxes may have
	ReasonImageNoPython Reason = "image_without_python" // the image has no Python, or too old a one
	ReasonImageBroken   Reason = "image_broken"         // the image cannot be read
	ReasonDiskFull      Reason = "disk_full"            // the host's disk has no room for another box
	ReasonRequirements  Reason = "requirements_failed"  // the packages of a requirements file cannot be had
	ReasonPreload       Reason = "preload_failed"       // a module that programs are to find imported cannot be
	ReasonBootFailed    Reason = "boot_failed"          // a box did not become ready, for another reason
)

// HostError is an error of a driver that a person must mend: it says what is wrong with the host or
// its settings, and what to do.
type HostError struct {
	Reason Reason
	Err    error
	Fix    string // what to type; may be empty
}

func (e *HostError) Error() string {
	if e.Fix == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + "; " + e.Fix
}

func (e *HostError) Unwrap() error { return e.Err }

// ReasonOf is the reason of the first HostError in err's tree; of any other error, ReasonBootFailed;
// of none, the empty word.
func ReasonOf(err error) Reason {
	if err == nil {
		return ""
	}
	if h, ok := errors.AsType[*HostError](err); ok {
		return h.Reason
	}
	return ReasonBootFailed
}
