package config

import "time"

// Execution configures the sandbox.
type Execution struct {
	// Directory of this host that `codefleet up` keeps in sync with the workspace of the tenant
	// `default`. Empty: none.
	WorkspaceDir string `yaml:"workspace_dir" env:"WORKSPACE_DIR,EXECUTION_WORKSPACE_DIR"`
	// Directory of tool modules, <server>/<tool>.py, which may change while the fleet runs. Empty:
	// `servers` in the data directory, with the modules that come with the program.
	ServersDir string `yaml:"servers_dir" env:"SERVERS_DIR,EXECUTION_SERVERS_DIR"`
	// Directory of skills shared by all tenants.
	SkillsDir string `yaml:"skills_dir" env:"SKILLS_DIR,EXECUTION_SKILLS_DIR"`
	// auto (the strongest that works on this host), microsandbox (virtual machines; needs msb and
	// hardware virtualisation) or gvisor.
	SandboxType string `yaml:"sandbox_type" env:"SANDBOX_TYPE"`
	// Image of microsandbox boxes: an OCI reference, or an archive or directory of this host whose
	// path begins with / or ./. It must have Python 3.9 or newer. Empty:
	// docker.io/library/python:3.12-slim.
	SandboxImage string `yaml:"sandbox_image" env:"SANDBOX_IMAGE"`
	// Directory that gVisor boxes use as their root, read-only. Empty: the host's Python and its
	// libraries, for a single tenant only.
	Rootfs string `yaml:"rootfs"`
	// Size limit of an unpacked image.
	MaxImageMB int64 `yaml:"max_image_mb"`
	// File of Python packages in pip's format. They are installed from wheels only, once for each
	// content of the file, and stored in the bucket for the other workers. Programs find them
	// before the sandbox's own packages. The host needs pip (python3-pip). Not with rootfs.
	Requirements string `yaml:"requirements"`
	// Modules to import before the program starts, such as slow ones of requirements.
	Preload []string `yaml:"preload"`
	// The state file of workspaces.
	State State `yaml:"state"`
	// The gVisor engine. Empty: `runsc` beside this binary, otherwise on PATH.
	Runsc string `yaml:"runsc" env:"CODEFLEET_RUNSC"`
	// microsandbox's binary. Empty: `msb` beside this binary, otherwise on PATH.
	Msb string `yaml:"msb" env:"CODEFLEET_MSB"`
	// Limit of boxes. 0: the worker's slots plus sandbox_pool_size.
	MaxBoxes int `yaml:"max_boxes"`
	// tenant: a box runs further tasks of its first tenant; never: a box runs one task.
	Reuse string `yaml:"reuse"`
	// Memory for all running tasks together. 0: three quarters of the host's.
	MemoryMBTotal int `yaml:"memory_mb_total"`
}

// Pool is the environment of one pool, instead of the one in Execution.
type Pool struct {
	// Image of the pool's boxes: an OCI or Docker archive on this host, a directory in OCI layout,
	// or a root file system as a directory; for microsandbox also an OCI reference. It must have
	// Python 3.9 or newer. Empty: that of execution.
	Image string `yaml:"image" sample:"/srv/images/analysis.tar"`
	// File of Python packages, as execution.requirements. With an image under microsandbox only.
	Requirements string `yaml:"requirements"`
	// Modules to import before the program starts.
	Preload []string `yaml:"preload"`
	// Number of boxes to keep ready that no tenant uses yet. Not set:
	// optimizations.sandbox_pool_size.
	Ready *int `yaml:"ready"`
}

// State configures the state file of workspaces.
type State struct {
	// Name of the state file in the workspace.
	StateFile string `yaml:"state_file" env:"STATE_FILE"`
}

// Limits are limits of one run, in addition to those in Guardrails.
type Limits struct {
	// Processors.
	CPUs float64 `yaml:"cpus"`
	// Standard output and standard error together; more is truncated.
	OutputBytes int64 `yaml:"output_bytes"`
	// Size of the workspace.
	WorkspaceMB int64 `yaml:"workspace_mb"`
	// Processes and threads.
	Processes int `yaml:"processes"`
	// Open files.
	OpenFiles int `yaml:"open_files"`
	// Bytes sent and received by all connections of one run, in MiB, if it has network access.
	NetworkMB int64 `yaml:"network_mb"`
}

// Guardrails configure checks of programs, and two limits of one run.
type Guardrails struct {
	// Check programs, inputs and results. The sandbox is the security boundary, not these checks.
	Enabled bool `yaml:"enabled" env:"GUARDRAILS_ENABLED"`
	// A finding refuses the task; otherwise it is a warning in the result.
	StrictMode bool `yaml:"strict_mode" env:"GUARDRAILS_STRICT_MODE"`
	// Check the program's code.
	SecurityChecks bool `yaml:"security_checks"`
	// Time of one run.
	MaxExecutionTime time.Duration `yaml:"max_execution_time" env:"MAX_EXECUTION_TIME"`
	// Memory of one run.
	MaxMemoryMB int `yaml:"max_memory_mb" env:"MAX_MEMORY_MB"`
}

// Optimizations configure warm sandboxes and the tool cache.
type Optimizations struct {
	// False disables everything in this section.
	Enabled bool `yaml:"enabled" env:"OPTIMIZATIONS_ENABLED"`
	// Create boxes before they are needed.
	SandboxPooling bool `yaml:"sandbox_pooling" env:"OPTIMIZATION_SANDBOX_POOLING"`
	// Number of boxes to keep ready that no tenant uses yet.
	SandboxPoolSize int `yaml:"sandbox_pool_size" env:"OPTIMIZATION_SANDBOX_POOL_SIZE"`
	// Cache tool descriptions by content. They always are.
	ToolCache bool `yaml:"tool_cache" env:"OPTIMIZATION_TOOL_CACHE"`
	// Read tool modules in parallel. They always are.
	ParallelDiscovery bool `yaml:"parallel_discovery" env:"OPTIMIZATION_PARALLEL_DISCOVERY"`
}

// ReadyBoxes returns how many boxes are kept ready: 0 when pooling is disabled.
func (o Optimizations) ReadyBoxes() int {
	if !o.Enabled || !o.SandboxPooling {
		return 0
	}
	return o.SandboxPoolSize
}

// LLM configures the language model that writes programs.
type LLM struct {
	// Let the model write programs; otherwise the rules do. Setting a key or an endpoint enables
	// it.
	Enabled bool `yaml:"enabled" env:"LLM_CODE_GENERATION,LLM_ENABLED"`
	// openai or azure_openai.
	Provider string `yaml:"provider" env:"LLM_PROVIDER"`
	// Model.
	Model string `yaml:"model" env:"LLM_MODEL"`
	// Key of the provider.
	APIKey Secret `yaml:"api_key" env:"LLM_API_KEY"`
	// Address of a service with OpenAI's protocol. Empty: OpenAI itself.
	BaseURL string `yaml:"base_url" env:"OPENAI_BASE_URL"`
	// Key for provider openai when api_key is empty.
	OpenAIAPIKey Secret `yaml:"openai_api_key" env:"OPENAI_API_KEY"`
	// Key for provider azure_openai when api_key is empty.
	AzureAPIKey Secret `yaml:"azure_api_key" env:"AZURE_OPENAI_API_KEY"`
	// Azure OpenAI: endpoint.
	AzureEndpoint string `yaml:"azure_endpoint" env:"AZURE_OPENAI_ENDPOINT"`
	// Azure OpenAI: name of the deployment.
	AzureDeploymentName string `yaml:"azure_deployment_name" env:"AZURE_OPENAI_DEPLOYMENT_NAME,AZURE_OPENAI_CHAT_DEPLOYMENT_NAME"`
	// Azure OpenAI: API version.
	AzureAPIVersion string `yaml:"azure_api_version" env:"AZURE_OPENAI_API_VERSION"`
	// Azure OpenAI: deployment for embeddings.
	AzureEmbedderName string `yaml:"azure_embedder_name" env:"AZURE_OPENAI_EMBEDDER_NAME"`
	// Azure OpenAI: API version for embeddings.
	AzureEmbedderVersion string `yaml:"azure_embedder_version" env:"AZURE_OPENAI_EMBEDDER_VERSION"`
	// 0 to 2.
	Temperature float64 `yaml:"temperature" env:"LLM_TEMPERATURE"`
	// Token limit of one answer.
	MaxTokens int `yaml:"max_tokens" env:"LLM_MAX_TOKENS"`
	// Time for one program, including retries of requests.
	Timeout time.Duration `yaml:"timeout"`
	// How often the model may correct its failed program, for tasks that do not set it.
	RepairAttempts int `yaml:"repair_attempts"`
	// Tokens that one task may spend, including repairs. 0: no limit.
	TaskTokens int `yaml:"task_tokens"`
	// Tokens that each tenant may spend in a day (UTC) in the whole fleet, unless the tenant has
	// its own setting. 0: no limit.
	DailyTokens int `yaml:"daily_tokens"`
	// More models, by the name that tasks give in `model`. What a profile leaves out is taken from
	// this section, except keys and addresses when the provider differs.
	Profiles map[string]LLMProfile `yaml:"profiles"`
}

// LLMProfile configures another model.
type LLMProfile struct {
	// openai or azure_openai. Empty: that of llm.
	Provider string `yaml:"provider"`
	// Model; for azure_openai the name of the deployment. Empty: that of llm.
	Model string `yaml:"model"`
	// Key. The key of llm is sent to the address of llm only.
	APIKey Secret `yaml:"api_key"`
	// Address of a service with OpenAI's protocol, or of the Azure OpenAI resource.
	BaseURL string `yaml:"base_url"`
	// Azure OpenAI: API version.
	APIVersion string `yaml:"api_version"`
	// 0 to 2. Not set: that of llm.
	Temperature *float64 `yaml:"temperature"`
	// Token limit of one answer. 0: that of llm.
	MaxTokens int `yaml:"max_tokens"`
}

// Embeddings configure vectors of tools and tasks, which help to find the tools for a task.
type Embeddings struct {
	// Model, as text-embedding-3-small. Setting it, or llm.azure_embedder_name, enables embeddings.
	// The descriptions of tools and tasks are sent to the model.
	Model string `yaml:"model"`
	// Length of vectors, for models that can shorten them; 512 is enough. 0: the model's default.
	Dimensions int `yaml:"dimensions"`
	// Address of a service with OpenAI's protocol. Empty: that of llm.
	BaseURL string `yaml:"base_url"`
	// Key. Empty: that of llm, if base_url is empty too.
	APIKey Secret `yaml:"api_key"`
	// Time for the vector of a task. When it is exceeded, tools are found by words alone.
	Deadline time.Duration `yaml:"deadline"`
}

// Tools configures tool calls.
type Tools struct {
	// What happens to calls that may delete or overwrite: allow, deny or approve (a person decides,
	// see docs/tools.md). Tools of an MCP server count as such unless they declare otherwise.
	Destructive string `yaml:"destructive"`
	// The same for single tools, as `git/*: approve` and `git/git_log: allow`, regardless of what
	// they declare.
	Policy map[string]string `yaml:"policy"`
	// Calls of one run.
	MaxCalls int `yaml:"max_calls"`
	// Arguments and results of one run together.
	MaxMB int `yaml:"max_mb"`
	// Concurrent calls of one run; more calls wait.
	MaxConcurrent int `yaml:"max_concurrent"`
	// How long a call waits for approval, within call_timeout and guardrails.max_execution_time:
	// raise them as well. 0: calls that need approval are refused.
	ApprovalTimeout time.Duration `yaml:"approval_timeout"`
	// Time of one call, including approval.
	CallTimeout time.Duration `yaml:"call_timeout"`
	// Time of all calls of one run together.
	TotalTime time.Duration `yaml:"total_time"`
}

// MCPServer configures one server of tools: a command on this host, or an address.
type MCPServer struct {
	// Name; also the directory of its tools.
	Name string `yaml:"name" sample:"wiki"`
	// Program to start, which speaks MCP on its standard input and output. Either this or url.
	Command string `yaml:"command"`
	// Arguments of command.
	Args []string `yaml:"args"`
	// Environment of command, in addition to PATH, HOME and LANG. NAME_file: PATH reads a value
	// from a file.
	Env map[string]Secret `yaml:"env"`
	// User that runs command; needs root. Default: the worker's user.
	User string `yaml:"user"`
	// Address of a running server.
	URL string `yaml:"url" sample:"https://wiki.example.org/mcp"`
	// Headers for requests to url. NAME_file: PATH reads a value from a file.
	Headers map[string]Secret `yaml:"headers"`
	// stdio, http or sse. Default: according to command or url.
	ConnectionType string `yaml:"connection_type"`
	// False disables the server.
	Enabled *bool `yaml:"enabled"`
	// Time of one call.
	Timeout time.Duration `yaml:"timeout"`
	// Who shares one connection to the server, and what the server keeps in it: tenant (the default), session,
	// or shared, by all tenants.
	Scope string `yaml:"scope"`
}
