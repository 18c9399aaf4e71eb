package config

import "time"

// MCP configures the fleet as an MCP server: /mcp of the HTTP interface of `codefleet up`, and the bridges
// `codefleet mcp` and mcp-bridge.
type MCP struct {
	// Serve MCP at /mcp of `codefleet up`.
	Enabled bool `yaml:"enabled"`
	// Address of a bridge that runs as a separate process and serves HTTP.
	Addr string `yaml:"addr"`
	// Tools for clients that do not request a profile: full, or compact (search, execute, get).
	Profile string `yaml:"profile"`
	// How long execute_task waits for a task to end before it returns a handle. Some clients give
	// up after 60 s.
	Wait time.Duration `yaml:"wait"`
	// The longest wait that a client may request.
	MaxWait time.Duration `yaml:"max_wait"`
	// Maximum size of one response in bytes. Longer text is returned as a resource link. Some
	// clients truncate responses.
	MaxOutput int `yaml:"max_output"`
	// Requests per second and tenant over HTTP.
	Rate int `yaml:"rate"`
	// Concurrent requests per tenant over HTTP. Idle streams do not count.
	Concurrent int `yaml:"concurrent"`
}

func (k *checker) mcp() {
	c := k.c.MCP
	k.addr("mcp.addr", c.Addr)
	k.oneOf("mcp.profile", c.Profile, "full", "compact")
	if c.Wait <= 0 || c.Wait > c.MaxWait {
		k.bad("mcp.wait", "%s is not between 0 and mcp.max_wait (%s)", c.Wait, c.MaxWait)
	}
	if c.MaxOutput < 4000 || c.MaxOutput > 1<<20 {
		k.bad("mcp.max_output", "%d is not from 4000 to 1048576", c.MaxOutput)
	}
	k.atLeast("mcp.rate", c.Rate, 1)
	k.atLeast("mcp.concurrent", c.Concurrent, 1)
}
