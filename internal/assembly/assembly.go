// Package assembly constructs the parts of a fleet from settings: config in, parts out. Its subpackages
// construct the queue's client, storage, sandboxes, models and tools; this package puts together what the
// programs run: the HTTP interface, the MCP bridge and the worker. It starts no server and no task.
package assembly

import (
	"cmp"
	"io"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// Telemetry returns what a program logs, traces and measures. program is its name.
func Telemetry(c *config.Config, program, version string, stderr io.Writer) telemetry.Options {
	return telemetry.Options{
		Service: cmp.Or(c.Telemetry.ServiceName, "codefleet-"+program), Instance: c.Worker.Name, Version: version,
		Log: telemetry.LogOptions{
			Level: c.Logging.Level, Format: c.Logging.Format, File: c.Logging.File, Output: stderr,
		},
		Endpoint: c.Telemetry.Endpoint, Sample: c.Telemetry.Sample, Metrics: c.Telemetry.Metrics,
	}
}
