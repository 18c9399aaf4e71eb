package assembly

import (
	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// Bridge returns the options of an MCP bridge to the fleet f.
func Bridge(c *config.Config, t *telemetry.Telemetry, version string, f client.Options) bridge.Options {
	return bridge.Options{
		Fleet: f, Version: version, Profile: c.MCP.Profile,
		Wait: c.MCP.Wait, MaxWait: c.MCP.MaxWait, MaxOutput: c.MCP.MaxOutput,
		Limits: bridge.Limits{Rate: c.MCP.Rate, Concurrent: c.MCP.Concurrent},
		Hosts:  c.HTTP.AllowedHosts, Origins: c.HTTP.AllowedOrigins,
		Privacy: clientPrivacy(c), Log: t.Logger,
	}
}
