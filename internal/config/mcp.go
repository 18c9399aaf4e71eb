package config

import "time"

// MCP is the fleet as an MCP server: at /mcp of the HTTP interface of `codefleet up`, and of the
// bridges `codefleet mcp` and mcp-bridge.
type MCP struct {
	// Serve it at /mcp of `codefleet up`.
	Enabled bool `yaml:"enabled"`
	// Address of a bridge that is a process of its own and serves HTTP.
	Addr string `yaml:"addr"`
	// What clients are shown that do not ask for one: full, or compact (search, execute, get).
	Profile string `yaml:"profile"`
	// How long execute_task waits for a task's end before it answers with a handle. Some clients
	// give up after 60 s.
	Wait time.Duration `yaml:"wait"`
	// The longest wait that a client may ask for.
	MaxWait time.Duration `yaml:"max_wait"`
	// Bytes of one answer; what is longer is linked to. Some clients cut answers.
	MaxOutput int `yaml:"max_output"`
	// Requests a second for each tenant, over HTTP.
	Rate int `yaml:"rate"`
	// Requests at once for each tenant, over HTTP, not counting idle streams.
	Concurrent int `yaml:"concurrent"`
	// OAuth servers that issue tokens of this fleet, told to clients that ask.
	AuthorizationServers []string `yaml:"authorization_servers"`
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
