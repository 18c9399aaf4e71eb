// Package config holds the settings of the fleet, one struct per concern. The comments of their fields
// are the manual: a test renders config.example.yaml and docs/configuration.md from them. Load fills the
// structs from defaults, config.yaml, .env, environment and flags, in this order. Only the programs and
// what constructs their parts import this package; all other packages take values.
//
// To add a setting, add a field with a yaml tag, its default in Default, its rule in check.go, and run
// `go test ./internal/config -update`. A setting that no code reads yet is listed in noeffect.go.
package config

import (
	"maps"
	"runtime"
	"slices"
	"time"
)

// Config holds all settings. Load returns one; a program that embeds a worker may change its fields and
// call Validate.
type Config struct {
	// Directory for everything that `codefleet up` stores and workers cache: queue, objects, boxes,
	// generated credentials. Default: $XDG_DATA_HOME/codefleet, or ~/.local/share/codefleet.
	Data string `yaml:"data"`
	// The HTTP interface.
	HTTP HTTP `yaml:"http"`
	// Authentication.
	Auth Auth `yaml:"auth"`
	// The tenants by name. Without any there is one tenant, `default`, which may do everything.
	Tenants map[string]Tenant `yaml:"tenants"`
	// The server of the queue.
	NATS NATS `yaml:"nats"`
	// The object store of workspaces and large payloads.
	S3 S3 `yaml:"s3"`
	// What is kept of workspaces, and for how long.
	Workspaces Workspaces `yaml:"workspaces"`
	// How tasks are claimed and retried.
	Queue Queue `yaml:"queue"`
	// One worker process.
	Worker Worker `yaml:"worker"`
	// The sandbox.
	Execution Execution `yaml:"execution"`
	// What programs can import, by the pool of their tasks. A pool that is not listed has the
	// environment of the section execution.
	Pools map[string]Pool `yaml:"pools"`
	// Limits of one run, in addition to those in guardrails. A task may set lower limits, or higher
	// ones up to those of its tenant.
	Limits Limits `yaml:"limits"`
	// Checks of programs, and two limits of one run.
	Guardrails Guardrails `yaml:"guardrails"`
	// Warm sandboxes and the tool cache.
	Optimizations Optimizations `yaml:"optimizations"`
	// The language model that writes programs for tasks given as a description.
	LLM LLM `yaml:"llm"`
	// Vectors from a model, which help to find the tools for a task.
	Embeddings Embeddings `yaml:"embeddings"`
	// Tool calls.
	Tools Tools `yaml:"tools"`
	// MCP servers whose tools programs may call.
	MCPServers []MCPServer `yaml:"mcp_servers"`
	// The fleet as an MCP server.
	MCP MCP `yaml:"mcp"`
	// Logs.
	Logging Logging `yaml:"logging"`
	// Traces and metrics.
	Telemetry Telemetry `yaml:"telemetry"`

	// Warnings name settings that were given and have no effect, each with what to do instead.
	Warnings []string `yaml:"-"`

	origins map[string]Origin
}

// HTTP configures the HTTP interface.
type HTTP struct {
	// Address of the HTTP interface.
	Addr string `yaml:"addr"`
	// Additional values of the Host header to accept. The address itself and loopback names are
	// always accepted.
	AllowedHosts []string `yaml:"allowed_hosts"`
	// Values of the Origin header to accept. Requests without the header are accepted.
	AllowedOrigins []string `yaml:"allowed_origins"`
	// Certificate file (PEM). Requires tls_key.
	TLSCert string `yaml:"tls_cert"`
	// Key file of tls_cert.
	TLSKey string `yaml:"tls_key"`
}

// Auth configures authentication.
type Auth struct {
	// Require bearer tokens. False is allowed on loopback addresses only.
	Enabled bool `yaml:"enabled"`
	// Tokens of operators, who see workers, pools and metrics and belong to no tenant. In the file
	// only.
	Operators []Token `yaml:"operators"`
}

// NATS configures the server of the queue.
type NATS struct {
	// Address of the embedded server of `codefleet up`.
	Addr string `yaml:"addr"`
	// Server to use, as nats://host:4222 or tls://…; several are separated by commas. Empty: the
	// embedded server of `up`.
	URL string `yaml:"url"`
	// Credentials file (JWT and seed).
	Creds string `yaml:"creds"`
	// User name.
	User string `yaml:"user"`
	// Password of user.
	Password Secret `yaml:"password"`
	// Token, for a server that requires one.
	Token Secret `yaml:"token"`
	// Certificate authorities of the server (PEM file). Empty: those of the system.
	TLSCA string `yaml:"tls_ca"`
	// Client certificate (PEM file). Requires tls_key.
	TLSCert string `yaml:"tls_cert"`
	// Key file of tls_cert.
	TLSKey string `yaml:"tls_key"`
	// Accept a server older than 2.12.3, which can lose messages.
	AllowOldServer bool `yaml:"allow_old_server"`
}

// S3 configures the object store.
type S3 struct {
	// Address of the embedded store of `codefleet up`.
	Addr string `yaml:"addr"`
	// Store to use, as https://host or http://host:9000. Empty: the embedded store of `up`.
	Endpoint string `yaml:"endpoint"`
	// Bucket. It must exist, except in the embedded store.
	Bucket string `yaml:"bucket"`
	// Prefix of all object names, for a shared bucket.
	Prefix string `yaml:"prefix"`
	// Region.
	Region string `yaml:"region"`
	// Access key.
	AccessKey string `yaml:"access_key"`
	// Secret key.
	SecretKey Secret `yaml:"secret_key"`
	// How the newest version of each workspace is recorded; the same in the whole fleet. s3-cas
	// needs a store with If-Match and If-None-Match, s3-create one with If-None-Match. nats records
	// it in the server of the queue and works with any store. unsafe-single-writer works with any
	// store too, but loses commits unless all workers run on one host with one data directory.
	// `codefleet doctor` reports what a store supports.
	Heads string `yaml:"heads"`
	// Embedded means that the store is the one of `codefleet up`.
	Embedded bool `yaml:"-"`
}

// Values of s3.heads.
const (
	HeadsCAS          = "s3-cas"
	HeadsCreate       = "s3-create"
	HeadsNATS         = "nats"
	HeadsSingleWriter = "unsafe-single-writer"
)

// Workspaces configures what is kept of workspaces, and for how long. Pinned versions and the newest
// version are always kept.
type Workspaces struct {
	// Number of newest versions to keep of each workspace.
	KeepNewest int `yaml:"keep_newest"`
	// Keep every version that was replaced less than this ago.
	KeepAll time.Duration `yaml:"keep_all"`
	// Keep the last version of each of this many days.
	KeepDays int `yaml:"keep_days"`
	// Delete a workspace with its history after this time without a commit. 0: never.
	Inactive time.Duration `yaml:"inactive"`
	// How long the name of a deleted workspace is remembered, to refuse late changes.
	KeepDeleted time.Duration `yaml:"keep_deleted"`
	// Interval of garbage collection, which one of the workers runs. 0: never.
	CleanEvery time.Duration `yaml:"clean_every"`
	// Garbage collection marks unreferenced objects older than this, and deletes them when they
	// have been marked for this long. At least 24h, and twice the longest task.
	Grace time.Duration `yaml:"grace"`
	// Where the newest files of each workspace are stored as plain objects too, for other programs
	// to read: s3://BUCKET/PREFIX, in the store of s3. It is updated after commits; the fleet does
	// not read it. The bucket must exist; in the bucket of s3 the prefix must begin with _. Empty:
	// no mirror.
	Mirror string `yaml:"mirror"`
	// Encryption of workspaces. Workers and ingest encrypt before they write to the object store.
	// The same in the whole fleet; a tenant may have its own.
	Encryption Encryption `yaml:"encryption"`
}

// Encryption names the secrets from which the key of each tenant is derived. A secret has at least 32
// random characters, as from `openssl rand -base64 32`. Without it the workspaces are lost.
type Encryption struct {
	// File with the secret. Empty: new data is not encrypted.
	KeyFile string `yaml:"key_file"`
	// Files with earlier secrets, to read existing data. Garbage collection encrypts the newest
	// versions again. An old secret is needed until older versions and pins have expired;
	// `codefleet doctor` reports when.
	OldKeyFiles []string `yaml:"old_key_files"`

	// Key and OldKeys are the contents of these files.
	Key     Secret   `yaml:"-"`
	OldKeys []Secret `yaml:"-"`
}

// Queue configures how tasks are claimed and retried.
type Queue struct {
	// A worker that has sent no heartbeat for this long loses its task to another worker. Workers
	// send one three times as often.
	AckWait time.Duration `yaml:"ack_wait"`
	// Number of attempts, when workers are lost or the fleet fails, before a task is dead-lettered.
	Attempts int `yaml:"attempts"`
}

// Worker configures one worker process.
type Worker struct {
	// Name in lists and records. Default: the host name and the process id.
	Name string `yaml:"name"`
	// Pools whose tasks the worker runs. Empty: `default` and those of pools.
	Pools []string `yaml:"pools"`
	// Tasks at a time. 0: twice the processors, at least 3.
	Slots int `yaml:"slots"`
	// How long running tasks may continue after the first stop signal before they are requeued.
	Drain time.Duration `yaml:"drain"`
}

// Logging configures the log.
type Logging struct {
	// DEBUG, INFO, WARNING or ERROR.
	Level string `yaml:"level" env:"LOG_LEVEL"`
	// File to append to. Empty: standard error.
	File string `yaml:"file" env:"LOG_FILE"`
	// text, json, or auto: text on a terminal, otherwise json.
	Format string `yaml:"format"`
}

// Telemetry configures traces and metrics.
type Telemetry struct {
	// OTLP endpoint (HTTP) for traces, as http://host:4318. Empty: no traces, at no cost. The other
	// OTEL_EXPORTER_OTLP_… variables (headers, compression, timeout) work too.
	Endpoint string `yaml:"endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
	// Service name in traces. Empty: the name of the program.
	ServiceName string `yaml:"service_name" env:"OTEL_SERVICE_NAME"`
	// Share of traces to record, 0 to 1. A caller's decision takes precedence.
	Sample float64 `yaml:"sample"`
	// Serve /metrics.
	Metrics bool `yaml:"metrics"`
	// Address on which a worker process serves /metrics and /healthz. Empty: it does not (ingest
	// and `up` serve them on http.addr).
	Addr string `yaml:"addr"`
}

// Slots returns how many tasks a worker runs at a time.
func (c *Config) Slots() int {
	if c.Worker.Slots > 0 {
		return c.Worker.Slots
	}
	return max(3, 2*runtime.NumCPU())
}

// WorkerPools returns the pools whose tasks a worker runs.
func (c *Config) WorkerPools() []string {
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

// DefaultPool is the pool of tasks that name none.
const DefaultPool = "default"

// Default returns the default settings. Data and Worker.Name are empty: they depend on the host, and Load
// sets them.
func Default() *Config {
	return &Config{
		HTTP: HTTP{Addr: "127.0.0.1:8787"},
		Auth: Auth{Enabled: true},
		NATS: NATS{Addr: "127.0.0.1:4222"},
		S3:   S3{Addr: "127.0.0.1:9000", Bucket: "codefleet", Region: "us-east-1", Heads: HeadsCAS},
		Workspaces: Workspaces{
			KeepNewest: 20, KeepAll: 24 * time.Hour, KeepDays: 7, CleanEvery: 6 * time.Hour, Grace: minGrace,
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
		Guardrails: Guardrails{
			Enabled: true, SecurityChecks: true, MaxExecutionTime: 300 * time.Second, MaxMemoryMB: 512,
		},
		Optimizations: Optimizations{
			Enabled: true, SandboxPooling: true, SandboxPoolSize: 3, ToolCache: true, ParallelDiscovery: true,
		},
		LLM: LLM{
			Provider: "openai", Model: "gpt-4o-mini", Temperature: 0.3, MaxTokens: 2000,
			AzureAPIVersion: "2024-08-01-preview", Timeout: time.Minute, RepairAttempts: 2,
		},
		Embeddings: Embeddings{Deadline: 300 * time.Millisecond},
		Tools: Tools{
			Destructive: "allow", MaxCalls: 1000, MaxMB: 256, MaxConcurrent: 16,
			ApprovalTimeout: 5 * time.Minute, CallTimeout: 5 * time.Minute, TotalTime: time.Hour,
		},
		MCP: MCP{
			Enabled: true, Addr: "127.0.0.1:8788", Profile: "full",
			Wait: 25 * time.Second, MaxWait: 45 * time.Second, MaxOutput: 20_000, Rate: 500, Concurrent: 512,
		},
		Logging:   Logging{Level: "INFO", Format: "auto"},
		Telemetry: Telemetry{Sample: 1, Metrics: true},
	}
}
