// Package assembly constructs the parts of a fleet from settings. Its subpackages construct the queue's client,
// storage, sandboxes, models and tools; this package combines them into the HTTP interface, the MCP bridge and
// the worker. It starts no server and no task.
package assembly

import (
	"io"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// Telemetry returns the options for a process's logs, traces and metrics. binary is its name, such as worker.
func Telemetry(c *config.Config, binary, version string, stderr io.Writer) telemetry.Options {
	return telemetry.Options{
		Service: c.Telemetry.ServiceName, DefaultService: "codefleet-" + binary,
		Instance: c.Worker.Name, Version: version,
		Log: telemetry.LogOptions{
			Level: c.Logging.Level, Format: c.Logging.Format, File: c.Logging.File, Output: stderr,
			Hide: logPrivacy(c),
		},
		Endpoint: c.Telemetry.Endpoint, Logs: c.Telemetry.Logs, Sample: c.Telemetry.Sample,
		Metrics: c.Telemetry.Metrics,
	}
}
