// Package config defines the fleet's settings, one struct per concern. The field comments are the manual: a test
// renders config.example.yaml and docs/configuration.md from them. Load fills the structs from defaults, config.yaml,
// .env, environment and flags, in this order. Only the commands and the packages that assemble, start or measure a
// fleet import this package (see internal/arch); all other packages take values.
//
// To add a setting, add a field with a yaml tag, its default in Default and its checks in check.go, and run
// `go test ./internal/config -update`. noeffect.go lists the settings that no code reads yet, and those
// that have no effect because of another one.
package config

import (
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Config holds all settings. Load returns one. An application may change fields and then call Validate.
type Config struct {
	// Directory for what `codefleet up` stores and what workers cache: queue, objects, boxes,
	// generated credentials. The default is $XDG_DATA_HOME/codefleet or ~/.local/share/codefleet.
	Data string `yaml:"data"`
	// The HTTP interface.
	HTTP HTTP `yaml:"http"`
	// Authentication.
	Auth Auth `yaml:"auth"`
	// Tenants by name. If none is configured, the fleet has one tenant, `default`, which may do
	// everything.
	Tenants map[string]Tenant `yaml:"tenants"`
	// The queue's NATS server.
	NATS NATS `yaml:"nats"`
	// The object store of workspaces and large payloads.
	S3 S3 `yaml:"s3"`
	// What is kept of workspaces, and for how long.
	Workspaces Workspaces `yaml:"workspaces"`
	// How tasks are claimed and retried.
	Queue Queue `yaml:"queue"`
	// Webhooks, which send results and events to URLs of tenants (docs/automation.md).
	Webhooks Webhooks `yaml:"webhooks"`
	// One worker process.
	Worker Worker `yaml:"worker"`
	// The sandbox.
	Execution Execution `yaml:"execution"`
	// Environments of task pools, by the task pool's name. They determine what programs can import.
	// A task pool that is not listed has the environment of the section execution.
	Pools map[string]Pool `yaml:"pools"`
	// Limits of one execution, in addition to those in guardrails. A task can set lower limits of time,
	// memory, processors and output, or higher ones up to its tenant's.
	Limits Limits `yaml:"limits"`
	// Checks of programs, and two limits of one execution.
	Guardrails Guardrails `yaml:"guardrails"`
	// Replacement of personal data and secrets with tokens (docs/privacy.md).
	Privacy Privacy `yaml:"privacy"`
	// Warm boxes and the tool cache.
	Optimizations Optimizations `yaml:"optimizations"`
	// The language model that writes programs for tasks given as a description.
	LLM LLM `yaml:"llm"`
	// Vectors from a model, which help the fleet to find the tools for a task.
	Embeddings Embeddings `yaml:"embeddings"`
	// Tool calls.
	Tools Tools `yaml:"tools"`
	// The built-in tools of weather.
	Weather Weather `yaml:"weather"`
	// MCP servers whose tools programs may call.
	MCPServers []MCPServer `yaml:"mcp_servers"`
	// The fleet as an MCP server.
	MCP MCP `yaml:"mcp"`
	// The web page.
	Page Page `yaml:"page"`
	// Logs.
	Logging Logging `yaml:"logging"`
	// Traces and metrics.
	Telemetry Telemetry `yaml:"telemetry"`

	// Warnings name given settings that have no effect or are probably wrong, and what to do instead.
	Warnings []string `yaml:"-"`

	origins map[string]Origin
	source  Source               // from which Load read the settings
	files   map[string]fileStamp // see loader.stamp

	filesRead []string // by Load
}

// HTTP configures the HTTP interface.
type HTTP struct {
	// Address of the HTTP interface.
	Addr string `yaml:"addr"`
	// Accepted names in the Host header, in addition to localhost and IP addresses.
	AllowedHosts []string `yaml:"allowed_hosts"`
	// Accepted values of the Origin header. Requests without the header, and from the fleet's own pages,
	// are always accepted.
	AllowedOrigins []string `yaml:"allowed_origins"`
	// Certificate file (PEM) for HTTPS. Requires tls_key.
	TLSCert string `yaml:"tls_cert"`
	// File with the private key of tls_cert.
	TLSKey string `yaml:"tls_key"`
}

// Auth configures authentication.
type Auth struct {
	// Require bearer tokens. False is allowed only if http.addr is a loopback address.
	Enabled bool `yaml:"enabled"`
	// Tokens of operators, who see and control the whole fleet and belong to no tenant. They can be set in
	// the file only.
	Operators []Token `yaml:"operators"`
}

// NATS configures the queue's NATS server.
type NATS struct {
	// Address of the embedded server of `codefleet up`.
	Addr string `yaml:"addr"`
	// URL of the server, nats://host:4222 or tls://host:4222. Several URLs are separated by commas.
	// `codefleet up` ignores it, and the credentials and certificates below: it always uses its embedded
	// server.
	URL string `yaml:"url"`
	// Credentials file (JWT and seed).
	Creds string `yaml:"creds"`
	// User name.
	User string `yaml:"user"`
	// Password of user.
	Password Secret `yaml:"password"`
	// Token, for a server that requires one.
	Token Secret `yaml:"token"`
	// File with the server's certificate authorities (PEM). The default is the system's.
	TLSCA string `yaml:"tls_ca"`
	// File with the client certificate (PEM). Requires tls_key.
	TLSCert string `yaml:"tls_cert"`
	// File with the private key of tls_cert.
	TLSKey string `yaml:"tls_key"`
	// How many servers of a NATS cluster keep each task: 1, 3 or 5. By default 3 in a cluster of at least
	// three servers, else 1. With 3, the loss of any one server loses no task. Replicas that were added by
	// hand are not removed.
	Replicas int `yaml:"replicas"`
	// Accept a server older than 2.12.3, which can lose messages.
	AllowOldServer bool `yaml:"allow_old_server"`
}

// S3 configures the object store.
type S3 struct {
	// Address of the embedded store of `codefleet up`.
	Addr string `yaml:"addr"`
	// URL of the store, such as https://host or http://host:9000. `codefleet up` ignores it, and the
	// region and keys below: it always uses its embedded store.
	Endpoint string `yaml:"endpoint"`
	// Name of the bucket. The bucket must exist, except in the embedded store.
	Bucket string `yaml:"bucket"`
	// Prefix of all object keys, for a bucket that is shared with other applications.
	Prefix string `yaml:"prefix"`
	// Region.
	Region string `yaml:"region"`
	// Access key.
	AccessKey string `yaml:"access_key"`
	// Secret key.
	SecretKey Secret `yaml:"secret_key"`
	// How HEAD of each workspace is swapped. It must be the same in the whole fleet. s3-cas needs a
	// store with If-Match and If-None-Match, s3-create a store with If-None-Match. nats keeps HEAD
	// in the queue's server and works with any store. unsafe-single-writer also works with any
	// store, but loses commits unless all workers run on one host with one data directory.
	// `codefleet doctor` reports what a store supports.
	Heads string `yaml:"heads"`
	// Embedded reports whether the store is the embedded store of `codefleet up`.
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
	// How many of the newest versions of each workspace to keep.
	KeepNewest int `yaml:"keep_newest"`
	// Keep every version for this time after it was replaced.
	KeepAll time.Duration `yaml:"keep_all"`
	// For how many days to keep the last version of each day.
	KeepDays int `yaml:"keep_days"`
	// Delete a workspace with its history after this time without a commit. 0 disables this.
	Inactive time.Duration `yaml:"inactive"`
	// How long to remember the name of a deleted workspace, to refuse late commits.
	KeepDeleted time.Duration `yaml:"keep_deleted"`
	// Interval of garbage collection, which one of the workers runs. 0 disables it.
	CleanEvery time.Duration `yaml:"clean_every"`
	// Garbage collection marks unreferenced objects that are older than this, and deletes them
	// after they have been marked for this long. At least 24h, and twice guardrails.max_execution_time
	// and each tenant's limits.timeout.
	Grace time.Duration `yaml:"grace"`
	// Whether HEAD may carry small commits of tasks, which makes such a commit one write. It needs
	// s3.heads: s3-cas. Set it to false while a part of the fleet is too old to read such HEADs.
	Carry bool `yaml:"carry"`
	// Where to mirror the newest files of each workspace as plain objects for other programs:
	// s3://BUCKET/PREFIX, in the store of the section s3. Commits update the mirror; the fleet does
	// not read it. The bucket must exist. In the bucket of the section s3, the prefix must begin
	// with _. By default, the fleet has no mirror.
	Mirror string `yaml:"mirror"`
	// Encryption of workspaces, by workers and ingest before they write to the object store. It must
	// be the same in the whole fleet. A tenant can have its own secret.
	Encryption Encryption `yaml:"encryption"`
}

// Encryption names the secrets from which each tenant's key is derived. A secret has at least 32 random characters, for
// example from `openssl rand -base64 32`. If it is lost, the workspaces are lost, too.
type Encryption struct {
	// File with the secret. A tenant without one uses that of workspaces.encryption; without either, new
	// data is not encrypted.
	KeyFile string `yaml:"key_file"`
	// Files with earlier secrets, to read existing data. Garbage collection encrypts the newest
	// versions with the new secret. An old secret is needed until older versions and pins have
	// expired; `codefleet doctor` reports whether it is still needed.
	OldKeyFiles []string `yaml:"old_key_files"`

	// Key and OldKeys are the contents of KeyFile and OldKeyFiles.
	Key     Secret   `yaml:"-"`
	OldKeys []Secret `yaml:"-"`
}

// Webhooks configures how results and events are sent to tenants' URLs.
type Webhooks struct {
	// Networks outside of the public internet in which targets may be, such as 10.1.0.0/16.
	PrivateNetworks []string `yaml:"private_networks"`
}

// Networks returns PrivateNetworks, without invalid ones, which Validate reports.
func (w Webhooks) Networks() (networks []netip.Prefix) {
	for _, text := range w.PrivateNetworks {
		if n, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, n.Masked())
		}
	}
	return networks
}

// Queue configures how tasks are claimed and retried.
type Queue struct {
	// After this time without a heartbeat, another worker takes over a task. Workers send three
	// heartbeats in this time.
	AckWait time.Duration `yaml:"ack_wait"`
	// How often the fleet tries to run a task, if workers are lost or the fleet fails, before the
	// task is dead-lettered; at most 100.
	Attempts int `yaml:"attempts"`
	// How many unfinished tasks one tenant may have in a task pool with one priority. Above it, tasks are
	// refused with the code backlog_full. A lower value takes effect when a part of the fleet starts, if no
	// tenant then has more unfinished tasks in a task pool with one priority than half of the new value.
	Backlog int `yaml:"backlog"`
	// How much large data one tenant may have in the queue, in MiB. It limits the data of unfinished
	// tasks (those over 256 KiB): above it, such tasks are refused. It also limits what is kept for up
	// to 8 days: large results, recorded tool calls, and data of dead letters. The oldest of these
	// are deleted first; the record of such a task stays, and its result says so.
	PayloadMB int `yaml:"payload_mb"`
	// How many dead letters of each tenant are kept. The oldest are deleted first.
	DeadLetters int `yaml:"dead_letters"`
}

// Worker configures one worker process.
type Worker struct {
	// Name in lists and records. The default is the host name and the process id.
	Name string `yaml:"name"`
	// Task pools that the worker serves. The default is `default` and the task pools of the section
	// pools.
	Pools []string `yaml:"pools"`
	// Maximum number of concurrent tasks. 0 selects twice the number of processors, at least 3.
	Slots int `yaml:"slots"`
	// How long running tasks may continue after the stop signal before they are requeued. A worker exits
	// at most a second later, even if the object store or the queue does not respond.
	Drain time.Duration `yaml:"drain"`
}

// Logging configures the log.
type Logging struct {
	// DEBUG, INFO, WARNING or ERROR.
	Level string `yaml:"level" env:"LOG_LEVEL"`
	// File to append to. The default is standard error.
	File string `yaml:"file" env:"LOG_FILE"`
	// text, json, or auto, which is text on a terminal and otherwise json.
	Format string `yaml:"format"`
}

// Telemetry configures traces and metrics.
type Telemetry struct {
	// OTLP endpoint (HTTP) for traces, such as http://host:4318. By default, no traces are
	// recorded. The other OTEL_EXPORTER_OTLP_… variables (headers, compression, timeout) work, too, but
	// only in the environment, not in .env.
	Endpoint string `yaml:"endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
	// Send the log to the endpoint, too, with the level and the replacements of the log.
	Logs bool `yaml:"logs"`
	// Service name in traces, logs and metrics. The default is service.name in OTEL_RESOURCE_ATTRIBUTES,
	// or else codefleet- and the name of the command, such as codefleet-worker.
	ServiceName string `yaml:"service_name" env:"OTEL_SERVICE_NAME"`
	// Share of traces to record, from 0 to 1. A caller's decision takes precedence.
	Sample float64 `yaml:"sample"`
	// Serve /metrics.
	Metrics bool `yaml:"metrics"`
	// Address on which a worker process serves /metrics and /healthz. By default, it does not serve
	// them. (ingest and `codefleet up` serve them on http.addr.) A worker's /healthz responds with 503
	// and the reasons while the queue or the object store does not respond or no box can be created.
	Addr string `yaml:"addr"`
}

// DefaultState returns the name of the default state document.
func (c *Config) DefaultState() string {
	s := c.Execution.State
	if strings.EqualFold(s.StateFormat, "yaml") && c.Origin("execution.state.state_file").Layer == LayerDefault {
		return "state.yaml"
	}
	return s.StateFile
}

// Slots returns how many tasks a worker runs concurrently.
func (c *Config) Slots() int {
	if c.Worker.Slots > 0 {
		return c.Worker.Slots
	}
	return max(3, 2*runtime.NumCPU())
}

// WorkerPools returns the task pools that a worker serves.
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

// DefaultPool is the task pool of tasks that name no task pool.
const DefaultPool = "default"

// Default returns the default settings. Data and Worker.Name are empty, because they depend on the host; Load sets
// them.
func Default() *Config {
	return &Config{
		HTTP: HTTP{Addr: "127.0.0.1:8787"},
		Auth: Auth{Enabled: true},
		NATS: NATS{Addr: "127.0.0.1:4222"},
		S3:   S3{Addr: "127.0.0.1:9000", Bucket: "codefleet", Region: "us-east-1", Heads: HeadsCAS},
		Workspaces: Workspaces{
			KeepNewest: 20, KeepAll: 24 * time.Hour, KeepDays: 7, CleanEvery: 6 * time.Hour, Grace: minGrace,
			KeepDeleted: 30 * 24 * time.Hour, Carry: true,
		},
		Queue:  Queue{AckWait: 30 * time.Second, Attempts: 3, Backlog: 100_000, PayloadMB: 4096, DeadLetters: 1000},
		Worker: Worker{Drain: 30 * time.Second},
		Execution: Execution{
			SkillsDir:   "./skills",
			SandboxType: "auto", Reuse: "tenant", MaxImageMB: 4096,
			State: State{Enabled: true, StateFile: "state.json", AutoSave: true},
		},
		Limits: Limits{
			CPUs: 1, OutputBytes: 1 << 20, WorkspaceMB: 1024, Processes: 64, OpenFiles: 1024, NetworkMB: 256,
		},
		Guardrails: Guardrails{
			Enabled: true, SecurityChecks: true, MaxExecutionTime: 300 * time.Second, MaxMemoryMB: 512,
		},
		Privacy: Privacy{
			Mode: PrivacyOff, TTL: maxTokenTTL,
			Recognizer: Recognizer{Language: "en", Timeout: 2 * time.Second, MinScore: 0.5},
		},
		Optimizations: Optimizations{
			Enabled: true, SandboxPooling: true, SandboxPoolSize: 3, ToolCache: true, ParallelDiscovery: true,
		},
		LLM: LLM{
			Provider: "openai", Model: "gpt-4o-mini", Temperature: 0.3, MaxTokens: 2000,
			AzureAPIVersion: "2024-08-01-preview", Timeout: time.Minute, RepairAttempts: 2,
		},
		Embeddings: Embeddings{Deadline: 300 * time.Millisecond},
		Weather:    Weather{Provider: WeatherSample},
		Tools: Tools{
			Destructive: "allow", MaxCalls: 1000, MaxMB: 256, MaxConcurrent: 16,
			ApprovalTimeout: 5 * time.Minute, CallTimeout: 5 * time.Minute, TotalTime: time.Hour,
		},
		MCP: MCP{
			Enabled: true, Addr: "127.0.0.1:8788", Profile: "full",
			Wait: 25 * time.Second, MaxWait: 45 * time.Second, MaxOutput: 20_000, Rate: 500, Concurrent: 512,
		},
		Page:      Page{Enabled: true},
		Logging:   Logging{Level: "INFO", Format: "auto"},
		Telemetry: Telemetry{Sample: 1, Metrics: true},
	}
}
