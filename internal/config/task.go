package config

import "time"

// Execution configures the sandbox.
type Execution struct {
	// Live folder: a directory of this host that `codefleet up` keeps in sync with the main
	// workspace of the tenant `default`. By default, there is no live folder.
	WorkspaceDir string `yaml:"workspace_dir" env:"WORKSPACE_DIR,EXECUTION_WORKSPACE_DIR"`
	// Directory of tool modules, <server>/<tool>.py, which may change while the fleet runs. The
	// default is `servers` in the data directory, with the built-in modules. They are also installed
	// into an empty directory. Separate workers and ingest without this setting use the published tools
	// (`codefleet tools publish`), if there are any.
	ServersDir string `yaml:"servers_dir" env:"SERVERS_DIR,EXECUTION_SERVERS_DIR"`
	// Directory of skills that all tenants share: directories with a SKILL.md, and files NAME.py (docs/skills.md). Each
	// worker and ingest reads its own copy, and sees changes within seconds. If it does not exist, there are none.
	SkillsDir string `yaml:"skills_dir" env:"SKILLS_DIR,EXECUTION_SKILLS_DIR"`
	// auto (the strongest sandbox that works on this host), microsandbox (virtual machines; needs
	// msb and hardware virtualisation) or gvisor.
	SandboxType string `yaml:"sandbox_type" env:"SANDBOX_TYPE"`
	// Image of boxes: an OCI reference, or the path of an archive or directory of this host
	// (docs/environments.md). The image must have Python 3.9 or newer. The default with microsandbox is
	// docker.io/library/python:3.12-slim, and with gVisor the host's Python. Cannot be combined with
	// rootfs, nor under gVisor with requirements.
	SandboxImage string `yaml:"sandbox_image" env:"SANDBOX_IMAGE"`
	// Directory that gVisor boxes use as their read-only root. The default, for a single tenant
	// only, is the host's Python with its libraries.
	Rootfs string `yaml:"rootfs"`
	// Size limit of an unpacked image.
	MaxImageMB int64 `yaml:"max_image_mb"`
	// File that lists Python packages in pip's format. A worker installs each version of the file
	// once, from wheels only, and stores the packages in the bucket for other workers. Programs
	// find them before the sandbox's own packages. The host needs pip (python3-pip). Cannot be
	// combined with rootfs.
	Requirements string `yaml:"requirements"`
	// Modules to import before the program starts, for example slow ones from requirements.
	Preload []string `yaml:"preload"`
	// The state document of workspaces.
	State State `yaml:"state"`
	// Path of the gVisor engine. The default is `runsc` next to this binary, or on PATH.
	Runsc string `yaml:"runsc" env:"CODEFLEET_RUNSC"`
	// Path of microsandbox's binary. The default is `msb` next to this binary, or on PATH.
	Msb string `yaml:"msb" env:"CODEFLEET_MSB"`
	// Maximum number of boxes. With 0, only idle_memory_mb limits the number of idle boxes.
	MaxBoxes int `yaml:"max_boxes"`
	// With tenant, a box runs further tasks of its first tenant. With never, a box runs one task.
	Reuse string `yaml:"reuse"`
	// Memory for all running tasks together. 0 selects three quarters of the host's memory.
	MemoryMBTotal int `yaml:"memory_mb_total"`
	// Memory for the idle boxes of all tenants together, as measured. If they need more, the boxes that have been
	// idle the longest are destroyed. The boxes that are kept ready for new tenants count too, but stay. 0 selects
	// a quarter of the host's memory.
	IdleMemoryMB int `yaml:"idle_memory_mb"`
}

// Pool is the environment of one task pool, instead of the environment in Execution.
type Pool struct {
	// Image of the task pool's boxes: an OCI or Docker archive on this host, a directory in OCI
	// layout, a root file system as a directory, or an OCI reference. The image must
	// have Python 3.9 or newer. The default is the image of execution.
	Image string `yaml:"image" sample:"/srv/images/analysis.tar"`
	// File that lists Python packages, like execution.requirements. Together with an image it works
	// under microsandbox only.
	Requirements string `yaml:"requirements"`
	// Modules to import before the program starts.
	Preload []string `yaml:"preload"`
	// Number of boxes to keep ready for tenants without one. The default is
	// optimizations.sandbox_pool_size.
	Ready *int `yaml:"ready"`
}

// State configures the state document of workspaces.
type State struct {
	// Programs have the variable state, and clients read and write state documents. A task may set state.enabled
	// to false for itself.
	Enabled bool `yaml:"enabled" env:"STATE_ENABLED"`
	// Name of the default state document in the workspace. With state_format yaml, the default is state.yaml.
	StateFile string `yaml:"state_file" env:"STATE_FILE"`
	// Save the keys of the variable state that a successful program has changed.
	AutoSave bool `yaml:"auto_save" env:"STATE_AUTO_SAVE"`
	// json or yaml. By default, the extension of state_file decides.
	StateFormat string `yaml:"state_format" env:"STATE_FORMAT"`
}

// Limits are limits of one execution, in addition to those in Guardrails.
type Limits struct {
	// Number of processors, from 0.01.
	CPUs float64 `yaml:"cpus"`
	// Bytes of standard output, and of standard error. More output is truncated.
	OutputBytes int64 `yaml:"output_bytes"`
	// Size of the workspace.
	WorkspaceMB int64 `yaml:"workspace_mb"`
	// Number of processes and threads.
	Processes int `yaml:"processes"`
	// Number of open files.
	OpenFiles int `yaml:"open_files"`
	// MiB that all network connections of one execution send and receive.
	NetworkMB int64 `yaml:"network_mb"`
}

// Guardrails configure checks of programs, and two limits of one execution.
type Guardrails struct {
	// off (programs are not checked), advise (a finding is a warning in the result) or strict (a program
	// with a finding does not run). By default, the next three settings decide. The sandbox is the
	// security boundary, not these checks.
	Level string `yaml:"level"`
	// Check programs. If false, the level is off.
	Enabled bool `yaml:"enabled" env:"GUARDRAILS_ENABLED"`
	// Do not run a program with a finding. If true, the level is strict.
	StrictMode bool `yaml:"strict_mode" env:"GUARDRAILS_STRICT_MODE"`
	// Check the program's code. If false, the level is off.
	SecurityChecks bool `yaml:"security_checks"`
	// Modules that programs should not import, such as requests, including the modules in them.
	BlockedImports []string `yaml:"blocked_imports"`
	// Functions that programs should not use, such as os.remove.
	BlockedCalls []string `yaml:"blocked_calls"`
	// Regular expressions (RE2) that the text of a program should not match.
	BlockedPatterns []string `yaml:"blocked_patterns"`
	// Conditions on inputs, tool arguments and results.
	Rules []GuardrailCondition `yaml:"rules"`
	// Time limit of one execution.
	MaxExecutionTime time.Duration `yaml:"max_execution_time" env:"MAX_EXECUTION_TIME"`
	// Memory limit of one execution.
	MaxMemoryMB int `yaml:"max_memory_mb" env:"MAX_MEMORY_MB"`
}

// GuardrailCondition is a condition on data, in CEL (the Common Expression Language).
type GuardrailCondition struct {
	// Name of the rule in findings.
	Name string `yaml:"name" sample:"small_payments"`
	// What the condition is about: inputs, arguments (of a tool call) or result.
	On string `yaml:"on" sample:"arguments"`
	// Tools to whose arguments the condition applies, as server/tool or server/*, also with the names
	// that programs import. The default is all.
	Tools []string `yaml:"tools" sample:"bank/pay"`
	// What must be true, such as args.amount <= 1000. Variables: inputs, tenant; with arguments also
	// server, tool, args; with result also result, output.
	Require string `yaml:"require" sample:"args.amount <= 1000"`
	// What to do instead. The finding contains it.
	Message string `yaml:"message" sample:"a person makes larger payments"`
}

// Optimizations configure warm sandboxes and the tool cache.
type Optimizations struct {
	// False has the effect of sandbox_pooling: false.
	Enabled bool `yaml:"enabled" env:"OPTIMIZATIONS_ENABLED"`
	// Create boxes before they are needed.
	SandboxPooling bool `yaml:"sandbox_pooling" env:"OPTIMIZATION_SANDBOX_POOLING"`
	// Number of boxes to keep ready for tenants without one.
	SandboxPoolSize int `yaml:"sandbox_pool_size" env:"OPTIMIZATION_SANDBOX_POOL_SIZE"`
	// Cache tool descriptions by content. The fleet always caches them.
	ToolCache bool `yaml:"tool_cache" env:"OPTIMIZATION_TOOL_CACHE"`
	// Read tool modules in parallel. The fleet always reads them in parallel.
	ParallelDiscovery bool `yaml:"parallel_discovery" env:"OPTIMIZATION_PARALLEL_DISCOVERY"`
}

// Pools reports whether boxes are created before they are needed.
func (o Optimizations) Pools() bool { return o.Enabled && o.SandboxPooling }

// ReadyBoxes returns how many boxes are kept ready. It is 0 if pooling is disabled.
func (o Optimizations) ReadyBoxes() int {
	if !o.Pools() {
		return 0
	}
	return o.SandboxPoolSize
}

// LLM configures the language model that writes programs.
type LLM struct {
	// Let the model write programs. If false, the rules write them. The default is true if the
	// provider's endpoint or, for the provider openai, a key is set.
	Enabled bool `yaml:"enabled" env:"LLM_CODE_GENERATION,LLM_ENABLED"`
	// openai or azure_openai. The default is azure_openai if azure_endpoint is set.
	Provider string `yaml:"provider" env:"LLM_PROVIDER"`
	// Name of the model.
	Model string `yaml:"model" env:"LLM_MODEL"`
	// API key of the provider.
	APIKey Secret `yaml:"api_key" env:"LLM_API_KEY"`
	// URL of an endpoint with OpenAI's protocol. The default is OpenAI's own endpoint.
	BaseURL string `yaml:"base_url" env:"OPENAI_BASE_URL"`
	// API key for the provider openai if api_key is empty.
	OpenAIAPIKey Secret `yaml:"openai_api_key" env:"OPENAI_API_KEY"`
	// API key for the provider azure_openai if api_key is empty.
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
	// Sampling temperature, from 0 to 2.
	Temperature float64 `yaml:"temperature" env:"LLM_TEMPERATURE"`
	// Token limit of one response.
	MaxTokens int `yaml:"max_tokens" env:"LLM_MAX_TOKENS"`
	// Time limit for writing one program, including retries of requests.
	Timeout time.Duration `yaml:"timeout"`
	// How often the model may repair its failed program, for tasks that do not set this.
	RepairAttempts int `yaml:"repair_attempts"`
	// Tokens that one task may spend, including repairs. 0 means no limit.
	TaskTokens int `yaml:"task_tokens"`
	// Tokens that each tenant may spend per day (UTC) in the whole fleet, unless the tenant has its
	// own setting. 0 means no limit.
	DailyTokens int `yaml:"daily_tokens"`
	// Further models, by the name that tasks give in `model`. Fields that a profile omits have the
	// values of this section, except keys and URLs if the provider differs.
	Profiles map[string]LLMProfile `yaml:"profiles"`
}

// LLMProfile configures another model.
type LLMProfile struct {
	// openai or azure_openai. The default is the provider of llm.
	Provider string `yaml:"provider"`
	// Name of the model, or for azure_openai of the deployment. The default is the model of llm, or its deployment.
	Model string `yaml:"model"`
	// API key. The key of llm is sent only to the endpoint of llm.
	APIKey Secret `yaml:"api_key"`
	// URL of an endpoint with OpenAI's protocol, or of the Azure OpenAI resource.
	BaseURL string `yaml:"base_url"`
	// Azure OpenAI: API version.
	APIVersion string `yaml:"api_version"`
	// Sampling temperature, from 0 to 2. The default is the temperature of llm.
	Temperature *float64 `yaml:"temperature"`
	// Token limit of one response. 0 selects the limit of llm.
	MaxTokens int `yaml:"max_tokens"`
}

// Embeddings configure vectors of tools and tasks, which help the fleet to find the tools for a task.
type Embeddings struct {
	// Name of the model, such as text-embedding-3-small. This or llm.azure_embedder_name enables
	// embeddings. The fleet sends the descriptions of tools and tasks to the model.
	Model string `yaml:"model"`
	// Length of vectors, for models that can shorten them; 512 is enough. 0 selects the model's
	// default.
	Dimensions int `yaml:"dimensions"`
	// URL of an endpoint with OpenAI's protocol. The default is the endpoint of llm.
	BaseURL string `yaml:"base_url"`
	// API key. The default, if base_url is empty, is the key of llm.
	APIKey Secret `yaml:"api_key"`
	// Time limit for embedding a task. When it is exceeded, the fleet finds tools by words alone.
	Deadline time.Duration `yaml:"deadline"`
}

// Tools configures tool calls.
type Tools struct {
	// Policy for calls that may delete or overwrite: allow, deny or approve (a person decides, see
	// docs/tools.md). Tools of an MCP server count as destructive unless they declare otherwise.
	Destructive string `yaml:"destructive"`
	// Policies for single tools or servers, such as `git/*: approve` and `git/git_log: allow`,
	// regardless of what the tools declare. Names may be those of the MCP server, or those that
	// programs import.
	Policy map[string]string `yaml:"policy"`
	// Maximum number of calls in one execution.
	MaxCalls int `yaml:"max_calls"`
	// Maximum size in MiB of all arguments and results of one execution.
	MaxMB int `yaml:"max_mb"`
	// Maximum number of concurrent calls of one execution. Further calls wait.
	MaxConcurrent int `yaml:"max_concurrent"`
	// How long a call waits for approval. call_timeout and guardrails.max_execution_time include
	// this time, so raise them, too. With 0, calls that need approval are refused.
	ApprovalTimeout time.Duration `yaml:"approval_timeout"`
	// Time limit of one call, including its approval.
	CallTimeout time.Duration `yaml:"call_timeout"`
	// Time limit of all calls of one execution together.
	TotalTime time.Duration `yaml:"total_time"`
}

// Weather configures the built-in tools of weather.
type Weather struct {
	// sample (made up from the location and the date; results say "sample") or open-meteo (the weather of
	// open-meteo.com, which needs no key). With open-meteo, workers send the names of places to
	// geocoding-api.open-meteo.com and their coordinates to api.open-meteo.com. It is free of charge for
	// non-commercial use only.
	Provider string `yaml:"provider"`
}

// Values of weather.provider.
const (
	WeatherSample    = "sample"
	WeatherOpenMeteo = "open-meteo"
)

// MCPServer configures one MCP server: a command on this host, or a URL.
type MCPServer struct {
	// Name of the server, and of the directory of its tools.
	Name string `yaml:"name" sample:"wiki"`
	// Command that speaks MCP on its standard input and output. Set either command or url.
	Command string `yaml:"command"`
	// Arguments of command.
	Args []string `yaml:"args"`
	// Environment of command, in addition to PATH, HOME and LANG. `NAME_file: PATH` reads the value
	// of NAME from a file.
	Env map[string]Secret `yaml:"env"`
	// User that runs command. This needs root. The default is the worker's user.
	User string `yaml:"user"`
	// Working directory of command. The default is the worker's.
	Cwd string `yaml:"cwd"`
	// URL of a running server.
	URL string `yaml:"url" sample:"https://wiki.example.org/mcp"`
	// Headers of requests to url. `NAME_file: PATH` reads the value of NAME from a file.
	Headers map[string]Secret `yaml:"headers"`
	// stdio for a command; http, or the older sse, for a URL. The default is stdio or http.
	ConnectionType string `yaml:"connection_type"`
	// False disables the server.
	Enabled *bool `yaml:"enabled"`
	// How long the server may take to start and to respond to the first request. The default is 2m for a
	// command, because npx and uvx may download it first, and 30s for a URL.
	StartTimeout time.Duration `yaml:"start_timeout"`
	// How long a call may take without a response or progress. The default is 1m.
	Timeout time.Duration `yaml:"timeout"`
	// Maximum number of concurrent calls of one worker. Further calls wait. The default is 8.
	Concurrency int `yaml:"concurrency"`
	// Which tasks share a connection, and thus what the server remembers of earlier calls: tenant (a tenant's
	// tasks, the default), session (a session's tasks) or shared (the tasks of all tenants).
	Scope string `yaml:"scope"`
}
