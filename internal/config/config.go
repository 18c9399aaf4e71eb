// Package config is every setting of the fleet: one struct per concern, whose comments are the
// manual (config.example.yaml and docs/configuration.md are written from them by a test), and Load,
// which fills them from defaults, config.yaml, .env, environment and flags, in this order. It is
// used by the programs in cmd only; the packages below take plain values.
//
// A new setting is a field with a yaml tag here, its default in Default, its check in check.go, and
// a run of `go test ./internal/config -update`.
package config

import (
	"maps"
	"runtime"
	"slices"
	"time"
)

// Config is every setting. Load makes one; a program that embeds a worker may change fields of it
// and call Validate.
type Config struct {
	// Directory for everything that `codefleet up` keeps and workers cache: queue, objects, boxes,
	// generated credentials. Default: $XDG_DATA_HOME/codefleet, or ~/.local/share/codefleet.
	Data string `yaml:"data"`
	// What listens for people and programs.
	HTTP HTTP `yaml:"http"`
	// Who may come in.
	Auth Auth `yaml:"auth"`
	// The tenants by name. None at all means one, `default`, which may do everything.
	Tenants map[string]Tenant `yaml:"tenants"`
	// The queue's server.
	NATS NATS `yaml:"nats"`
	// The object store of workspaces and large payloads.
	S3 S3 `yaml:"s3"`
	// What is kept of workspaces, and for how long.
	Workspaces Workspaces `yaml:"workspaces"`
	// How tasks are taken and tried again.
	Queue Queue `yaml:"queue"`
	// One worker process.
	Worker Worker `yaml:"worker"`
	// The sandbox.
	Execution Execution `yaml:"execution"`
	// What programs can import, by the pool that their tasks go to. A pool that is not here has what
	// execution says.
	Pools map[string]Pool `yaml:"pools"`
	// Limits of one run, beside those in guardrails; a task may ask for less or more, up to its
	// tenant's.
	Limits Limits `yaml:"limits"`
	// Rules for programs, and two limits of one run.
	Guardrails Guardrails `yaml:"guardrails"`
	// Warm sandboxes and the tool cache.
	Optimizations Optimizations `yaml:"optimizations"`
	// The language model that writes programs for tasks given as a description.
	LLM LLM `yaml:"llm"`
	// Vectors from a model, which help to find the tools of a task.
	Embeddings Embeddings `yaml:"embeddings"`
	// Calls of tools.
	Tools Tools `yaml:"tools"`
	// MCP servers whose tools programs may call.
	MCPServers []MCPServer `yaml:"mcp_servers"`
	// The fleet as an MCP server.
	MCP MCP `yaml:"mcp"`
	// Logs.
	Logging Logging `yaml:"logging"`
	// Traces and metrics.
	Telemetry Telemetry `yaml:"telemetry"`

	// Warnings are settings that were given and have no effect, each with what to do instead.
	Warnings []string `yaml:"-"`

	origins map[string]Origin
}

// HTTP is what listens for people and programs.
type HTTP struct {
	// Address of the HTTP interface.
	Addr string `yaml:"addr"`
	// Further values of the Host header that are accepted; the address itself and loopback names
	// always are.
	AllowedHosts []string `yaml:"allowed_hosts"`
	// Values of the Origin header that are accepted. Requests without one are.
	AllowedOrigins []string `yaml:"allowed_origins"`
	// Certificate and key files (PEM). Both or none.
	TLSCert string `yaml:"tls_cert"`
	// Key file of tls_cert.
	TLSKey string `yaml:"tls_key"`
}

// Auth is who may come in.
type Auth struct {
	// Bearer tokens are asked for. Off is allowed on loopback addresses only.
	Enabled bool `yaml:"enabled"`
	// Tokens of operators, who see workers, pools and metrics and are no tenant. In the file only.
	Operators []Token `yaml:"operators"`
}

// NATS is the queue's server.
type NATS struct {
	// Address on which `codefleet up` lets its embedded server listen.
	Addr string `yaml:"addr"`
	// Server to use, as nats://host:4222 or tls://…, several separated by commas. Empty: the
	// embedded one of `up`.
	URL string `yaml:"url"`
	// Credentials file (JWT and seed).
	Creds string `yaml:"creds"`
	// User name.
	User string `yaml:"user"`
	// Password of user.
	Password Secret `yaml:"password"`
	// Token, where the server asks for one.
	Token Secret `yaml:"token"`
	// Certificate authorities of the server (PEM file). Empty: those of the system.
	TLSCA string `yaml:"tls_ca"`
	// Client certificate and key (PEM files). Both or none.
	TLSCert string `yaml:"tls_cert"`
	// Key file of tls_cert.
	TLSKey string `yaml:"tls_key"`
	// Use a server older than 2.12.3, which is known to lose messages.
	AllowOldServer bool `yaml:"allow_old_server"`
}

// S3 is the object store.
type S3 struct {
	// Address on which `codefleet up` lets its embedded store listen.
	Addr string `yaml:"addr"`
	// Store to use, as https://host or http://host:9000. Empty: the embedded one of `up`.
	Endpoint string `yaml:"endpoint"`
	// Bucket; it must exist, except in the embedded store.
	Bucket string `yaml:"bucket"`
	// Prefix of every object's name, for a bucket that is shared.
	Prefix string `yaml:"prefix"`
	// Region.
	Region string `yaml:"region"`
	// Access key.
	AccessKey string `yaml:"access_key"`
	// Secret key.
	SecretKey Secret `yaml:"secret_key"`
	// How the newest version of each workspace is kept, the same in the whole fleet: s3-cas needs a
	// store with If-Match and If-None-Match; s3-create one with If-None-Match; nats keeps it in the
	// queue's server, for any store; unsafe-single-writer is for any store too, and loses commits
	// unless all workers are on one host and have one data directory. `codefleet doctor` says what a store
	// honours.
	Heads string `yaml:"heads"`
	// The store is the one of `up`.
	Embedded bool `yaml:"-"`
}

// Values of s3.heads.
const (
	HeadsCAS          = "s3-cas"
	HeadsCreate       = "s3-create"
	HeadsNATS         = "nats"
	HeadsSingleWriter = "unsafe-single-writer"
)

// Workspaces is what is kept of workspaces, and for how long. Pinned versions and the newest one are
// always kept.
type Workspaces struct {
	// The newest versions of each that are kept.
	KeepNewest int `yaml:"keep_newest"`
	// Every version replaced less than this ago is kept.
	KeepAll time.Duration `yaml:"keep_all"`
	// The last version of each of so many days is kept.
	KeepDays int `yaml:"keep_days"`
	// A workspace without a commit for so long is deleted, its history too. 0: never.
	Inactive time.Duration `yaml:"inactive"`
	// For so long the name of a deleted workspace is remembered, so that late changes are refused.
	KeepDeleted time.Duration `yaml:"keep_deleted"`
	// How often one of the workers removes what is no longer needed. 0: never.
	CleanEvery time.Duration `yaml:"clean_every"`
	// What nothing refers to is marked when it is older than this, and removed when it has been marked
	// for as long. At least 24h, and twice the longest task.
	Grace time.Duration `yaml:"grace"`
	// Where the newest files of each workspace are kept as plain objects too, for other programs to read:
	// s3://BUCKET/PREFIX, in the store of s3. It follows after commits, and nothing is read from it. The
	// bucket must exist; in the bucket of s3 the prefix begins with _. Empty: nowhere.
	Mirror string `yaml:"mirror"`
	// What workspaces are encrypted with, by workers and ingest, before they leave for the object
	// store. The same in the whole fleet; a tenant may have its own.
	Encryption Encryption `yaml:"encryption"`
}

// Encryption is the secrets that keys are derived from, another one for each tenant. A secret has at
// least 32 random characters, as `openssl rand -base64 32` makes them; whoever loses it has lost the
// workspaces.
type Encryption struct {
	// File with the secret. Empty: what is written is in the clear.
	KeyFile string `yaml:"key_file"`
	// Files with earlier secrets, of what can still be read. Cleaning writes the newest versions anew; an
	// old secret is needed until the versions and pins from before have left, which codefleet doctor knows.
	OldKeyFiles []string `yaml:"old_key_files"`

	// Key and OldKeys are the secrets in these files.
	Key     Secret   `yaml:"-"`
	OldKeys []Secret `yaml:"-"`
}

// Queue is how tasks are taken and tried again.
type Queue struct {
	// A worker that is silent for this long has lost its task to another one. It reports three
	// times as often.
	AckWait time.Duration `yaml:"ack_wait"`
	// How often a task is begun when workers are lost or the fleet fails, before it is dead.
	Attempts int `yaml:"attempts"`
}

// Worker is one worker process.
type Worker struct {
	// Name in lists and records. Default: the host's name and the process id.
	Name string `yaml:"name"`
	// Pools that it takes tasks from. Empty: `default`, and those of pools.
	Pools []string `yaml:"pools"`
	// Tasks at a time. 0: twice the processors, at least 3.
	Slots int `yaml:"slots"`
	// After the first signal to stop, how long running tasks may go on before they are handed back.
	Drain time.Duration `yaml:"drain"`
}

// Logging is the log.
type Logging struct {
	// DEBUG, INFO, WARNING or ERROR.
	Level string `yaml:"level" env:"LOG_LEVEL"`
	// File that is appended to. Empty: standard error.
	File string `yaml:"file" env:"LOG_FILE"`
	// text, json, or auto: text on a terminal, else json.
	Format string `yaml:"format"`
}

// Telemetry is traces and metrics.
type Telemetry struct {
	// OTLP endpoint (HTTP) that traces go to, as http://host:4318. Empty: no traces, at no cost. The
	// other OTEL_EXPORTER_OTLP_… variables (headers, compression, timeout) are honoured too.
	Endpoint string `yaml:"endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
	// Name of the service in traces. Empty: the name of the program.
	ServiceName string `yaml:"service_name" env:"OTEL_SERVICE_NAME"`
	// Share of traces that are kept, 0 to 1; a caller's decision is followed.
	Sample float64 `yaml:"sample"`
	// /metrics is served.
	Metrics bool `yaml:"metrics"`
	// Address on which a worker process serves /metrics and /healthz. Empty: nowhere (ingest and
	// `up` serve them on http.addr).
	Addr string `yaml:"addr"`
}

// Slots is how many tasks a worker runs at a time.
func (c *Config) Slots() int {
	if c.Worker.Slots > 0 {
		return c.Worker.Slots
	}
	return max(3, 2*runtime.NumCPU())
}

// TakesFrom are the pools that a worker takes tasks from.
func (c *Config) TakesFrom() []string {
	if len(c.Worker.Pools) > 0 {
		return c.Worker.Pools
	}
	pools := []string{DefaultPool}
	for _, name := range slices.Sorted(maps.Keys(c.Pools)) {
		if name != DefaultPool {
			pools = append(pools, name)
		}
	}
	return pools
}

// DefaultPool is the one of tasks that name none.
const DefaultPool = "default"

// Default returns the settings before anything was read. Data and Worker.Name are still empty: they
// depend on the host, and Load fills them.
func Default() *Config {
	return &Config{
		HTTP: HTTP{Addr: "127.0.0.1:8787"},
		Auth: Auth{Enabled: true},
		NATS: NATS{Addr: "127.0.0.1:4222"},
		S3:   S3{Addr: "127.0.0.1:9000", Bucket: "codefleet", Region: "us-east-1", Heads: HeadsCAS},
		Workspaces: Workspaces{
			KeepNewest: 20, KeepAll: 24 * time.Hour, KeepDays: 7, CleanEvery: 6 * time.Hour, Grace: leastGrace,
			KeepDeleted: 30 * 24 * time.Hour,
		},
		Queue:  Queue{AckWait: 30 * time.Second, Attempts: 3},
		Worker: Worker{Drain: 30 * time.Second},
		Execution: Execution{
			SkillsDir:   "./skills",
			SandboxType: "auto", Reuse: "tenant", MaxImageMB: 4096,
			State: State{StateFile: "state.json"},
		},
		Limits: Limits{
			CPUs: 1, OutputBytes: 1 << 20, WorkspaceMB: 1024, Processes: 64, OpenFiles: 1024, NetworkMB: 256,
		},
		Guardrails:    Guardrails{Enabled: true, SecurityChecks: true, MaxExecutionTime: 300 * time.Second, MaxMemoryMB: 512},
		Optimizations: Optimizations{Enabled: true, SandboxPooling: true, SandboxPoolSize: 3, ToolCache: true, ParallelDiscovery: true},
		LLM:           LLM{Provider: "openai", Model: "gpt-4o-mini", Temperature: 0.3, MaxTokens: 2000, AzureAPIVersion: "2024-08-01-preview", Timeout: time.Minute, RepairAttempts: 2},
		Embeddings:    Embeddings{Deadline: 300 * time.Millisecond},
		Tools: Tools{
			Destructive: "allow", MaxCalls: 1000, MaxMB: 256, MaxConcurrent: 16, ApprovalTimeout: 5 * time.Minute, CallTimeout: 5 * time.Minute, TotalTime: time.Hour,
		},
		MCP: MCP{
			Enabled: true, Addr: "127.0.0.1:8788", Profile: "full",
			Wait: 25 * time.Second, MaxWait: 45 * time.Second, MaxOutput: 20_000, Rate: 500, Concurrent: 512,
		},
		Logging:   Logging{Level: "INFO", Format: "auto"},
		Telemetry: Telemetry{Sample: 1, Metrics: true},
	}
}
