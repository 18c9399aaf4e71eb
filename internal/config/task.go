package config

import "time"

// Execution is the sandbox.
type Execution struct {
	// A directory of this host that `codefleet up` keeps in step with the workspace of the tenant
	// `default`. Empty: none.
	WorkspaceDir string `yaml:"workspace_dir" env:"WORKSPACE_DIR,EXECUTION_WORKSPACE_DIR"`
	// Directory of tool modules, <server>/<tool>.py, which may change while the fleet runs. Empty:
	// `servers` in the data directory, where those that come with the program are put.
	ServersDir string `yaml:"servers_dir" env:"SERVERS_DIR,EXECUTION_SERVERS_DIR"`
	// Skills shared by all tenants. No effect yet: skills are files below skills/ in the workspace.
	SkillsDir string `yaml:"skills_dir" env:"SKILLS_DIR,EXECUTION_SKILLS_DIR"`
	// auto (the strongest that boots here), microsandbox (virtual machines; needs msb and hardware
	// virtualisation) or gvisor.
	SandboxType string `yaml:"sandbox_type" env:"SANDBOX_TYPE"`
	// Image of boxes of microsandbox: an OCI reference, or an archive or a directory of this host that
	// begins with / or ./. It has Python 3.9 or newer. Empty: docker.io/library/python:3.12-slim.
	SandboxImage string `yaml:"sandbox_image" env:"SANDBOX_IMAGE"`
	// Directory that boxes of gVisor see as their root, read-only. Empty: the host's Python and its
	// libraries, for one tenant only.
	Rootfs string `yaml:"rootfs"`
	// Size of an image, unpacked.
	MaxImageMB int64 `yaml:"max_image_mb"`
	// File of Python packages in the format of pip, installed once for each content of the file, from
	// wheels only, and kept in the bucket for the other workers; programs find them before the sandbox's
	// own. The host has pip (python3-pip). Not with rootfs.
	Requirements string `yaml:"requirements"`
	// Modules that programs find imported already, such as those of requirements that take long.
	Preload []string `yaml:"preload"`
	// The state that sessions share.
	State State `yaml:"state"`
	// The gVisor engine. Empty: `runsc` beside this program, else on PATH.
	Runsc string `yaml:"runsc" env:"CODEFLEET_RUNSC"`
	// The program of microsandbox. Empty: `msb` beside this program, else on PATH.
	Msb string `yaml:"msb" env:"CODEFLEET_MSB"`
	// Boxes at most. 0: the worker's slots and sandbox_pool_size together.
	MaxBoxes int `yaml:"max_boxes"`
	// tenant: a box goes on to serve the tenant that it served first; never: one task a box.
	Reuse string `yaml:"reuse"`
	// Memory that all running tasks may have together. 0: three quarters of the host's.
	MemoryMBTotal int `yaml:"memory_mb_total"`
}

// Pool is what programs of the tasks of one pool can import, in place of what execution says.
type Pool struct {
	// Image of its boxes: an archive in the format of OCI or Docker on this host, a directory in OCI's
	// layout, or a root file system as a directory; for microsandbox also an OCI reference. It has
	// Python 3.9 or newer. Empty: that of execution.
	Image string `yaml:"image" sample:"/srv/images/analysis.tar"`
	// File of Python packages, as execution.requirements. Beside an image under microsandbox only.
	Requirements string `yaml:"requirements"`
	// Modules that programs find imported already.
	Preload []string `yaml:"preload"`
	// So many boxes that no tenant uses yet are kept ready. Not given: optimizations.sandbox_pool_size.
	Ready *int `yaml:"ready"`
}

// State is the state that sessions share.
type State struct {
	// Name of the state file in the workspace.
	StateFile string `yaml:"state_file" env:"STATE_FILE"`
}

// Limits are of one run, beside those in Guardrails.
type Limits struct {
	// Processors.
	CPUs float64 `yaml:"cpus"`
	// Standard output and standard error together; what goes beyond is cut.
	OutputBytes int64 `yaml:"output_bytes"`
	// Size of the workspace.
	WorkspaceMB int64 `yaml:"workspace_mb"`
	// Processes and threads.
	Processes int `yaml:"processes"`
	// Open files.
	OpenFiles int `yaml:"open_files"`
	// Sent and received by all connections of one run together, in MiB, where it may have some.
	NetworkMB int64 `yaml:"network_mb"`
}

// Guardrails are rules for programs, and two limits.
type Guardrails struct {
	// Programs, inputs and results are checked. No effect yet. The sandbox, not this, is the boundary.
	Enabled bool `yaml:"enabled" env:"GUARDRAILS_ENABLED"`
	// A finding refuses the task; else it is a warning in the result. No effect yet.
	StrictMode bool `yaml:"strict_mode" env:"GUARDRAILS_STRICT_MODE"`
	// The program's code is checked. No effect yet.
	SecurityChecks bool `yaml:"security_checks"`
	// Time of one run.
	MaxExecutionTime time.Duration `yaml:"max_execution_time" env:"MAX_EXECUTION_TIME"`
	// Memory of one run.
	MaxMemoryMB int `yaml:"max_memory_mb" env:"MAX_MEMORY_MB"`
}

// Optimizations are warm sandboxes and the tool cache.
type Optimizations struct {
	// False turns all of this section off.
	Enabled bool `yaml:"enabled" env:"OPTIMIZATIONS_ENABLED"`
	// Boxes are made before they are needed.
	SandboxPooling bool `yaml:"sandbox_pooling" env:"OPTIMIZATION_SANDBOX_POOLING"`
	// So many boxes that no tenant uses yet are kept ready.
	SandboxPoolSize int `yaml:"sandbox_pool_size" env:"OPTIMIZATION_SANDBOX_POOL_SIZE"`
	// Tool descriptions are cached by content. Always so; no effect.
	ToolCache bool `yaml:"tool_cache" env:"OPTIMIZATION_TOOL_CACHE"`
	// Tool modules are read at the same time. Always so; no effect.
	ParallelDiscovery bool `yaml:"parallel_discovery" env:"OPTIMIZATION_PARALLEL_DISCOVERY"`
}

// ReadyBoxes is how many boxes are kept ready: 0 when pooling is off.
func (o Optimizations) ReadyBoxes() int {
	if !o.Enabled || !o.SandboxPooling {
		return 0
	}
	return o.SandboxPoolSize
}

// LLM is the language model that writes programs.
type LLM struct {
	// Programs are written by the model, by rules otherwise. A key or an endpoint turns it on by
	// itself.
	Enabled bool `yaml:"enabled" env:"LLM_CODE_GENERATION,LLM_ENABLED"`
	// openai or azure_openai.
	Provider string `yaml:"provider" env:"LLM_PROVIDER"`
	// Model.
	Model string `yaml:"model" env:"LLM_MODEL"`
	// Key of the provider.
	APIKey Secret `yaml:"api_key" env:"LLM_API_KEY"`
	// Address of a service that speaks OpenAI's protocol. Empty: OpenAI's own.
	BaseURL string `yaml:"base_url" env:"OPENAI_BASE_URL"`
	// Key used when provider is openai and api_key is empty.
	OpenAIAPIKey Secret `yaml:"openai_api_key" env:"OPENAI_API_KEY"`
	// Key used when provider is azure_openai and api_key is empty.
	AzureAPIKey Secret `yaml:"azure_api_key" env:"AZURE_OPENAI_API_KEY"`
	// Azure OpenAI: endpoint.
	AzureEndpoint string `yaml:"azure_endpoint" env:"AZURE_OPENAI_ENDPOINT"`
	// Azure OpenAI: name of the deployment.
	AzureDeploymentName string `yaml:"azure_deployment_name" env:"AZURE_OPENAI_DEPLOYMENT_NAME,AZURE_OPENAI_CHAT_DEPLOYMENT_NAME"`
	// Azure OpenAI: version of the interface.
	AzureAPIVersion string `yaml:"azure_api_version" env:"AZURE_OPENAI_API_VERSION"`
	// Azure OpenAI: deployment for embeddings.
	AzureEmbedderName string `yaml:"azure_embedder_name" env:"AZURE_OPENAI_EMBEDDER_NAME"`
	// Azure OpenAI: version of the interface for embeddings.
	AzureEmbedderVersion string `yaml:"azure_embedder_version" env:"AZURE_OPENAI_EMBEDDER_VERSION"`
	// 0 to 2.
	Temperature float64 `yaml:"temperature" env:"LLM_TEMPERATURE"`
	// Tokens of one answer at most.
	MaxTokens int `yaml:"max_tokens" env:"LLM_MAX_TOKENS"`
	// Time that the model has for one program, its retries included.
	Timeout time.Duration `yaml:"timeout"`
	// How often a program of the model's that failed goes back to it with the error, where the task
	// does not say.
	RepairAttempts int `yaml:"repair_attempts"`
	// Tokens that one task may spend, repairs included. 0: any.
	TaskTokens int `yaml:"task_tokens"`
	// Tokens that each tenant may spend in a day of UTC, in the whole fleet, where the tenant's own
	// setting does not say. 0: any.
	DailyTokens int `yaml:"daily_tokens"`
	// Other models, by the name with which a task asks for one (`model`). What a profile leaves out is
	// as above, but for keys and addresses when its provider is another one.
	Profiles map[string]LLMProfile `yaml:"profiles"`
}

// LLMProfile is one more model.
type LLMProfile struct {
	// openai or azure_openai. Empty: that of llm.
	Provider string `yaml:"provider"`
	// Model; for azure_openai the name of the deployment. Empty: that of llm.
	Model string `yaml:"model"`
	// Key; a profile with an address of its own needs its own.
	APIKey Secret `yaml:"api_key"`
	// Address of a service that speaks OpenAI's protocol, or of the Azure OpenAI resource.
	BaseURL string `yaml:"base_url"`
	// Azure OpenAI: version of the interface.
	APIVersion string `yaml:"api_version"`
	// 0 to 2.
	Temperature *float64 `yaml:"temperature"`
	// Tokens of one answer at most. 0: those of llm.
	MaxTokens int `yaml:"max_tokens"`
}

// Embeddings are vectors of tools and tasks from a model, which help to find the tools of a task.
type Embeddings struct {
	// Model, as text-embedding-3-small: this, or llm.azure_embedder_name, turns them on. The
	// descriptions of tools and tasks are sent to it.
	Model string `yaml:"model"`
	// Numbers a vector, for models that can shorten theirs; 512 is enough. 0: the model's own.
	Dimensions int `yaml:"dimensions"`
	// Address of a service that speaks OpenAI's protocol. Empty: that of llm.
	BaseURL string `yaml:"base_url"`
	// Key. Empty: that of llm, when the address is that of llm too.
	APIKey Secret `yaml:"api_key"`
	// Time for the vector of a task. Without it in time, tools are found by words.
	Deadline time.Duration `yaml:"deadline"`
}

// Tools are calls of tools.
type Tools struct {
	// What happens to calls that may delete or overwrite: allow, deny or approve (somebody is asked,
	// see docs/tools.md). Tools of an MCP server may, unless they say that they
	// do not.
	Destructive string `yaml:"destructive"`
	// The same for single tools, as `git/*: approve` and `git/git_log: allow`, whatever they say of
	// themselves.
	Policy map[string]string `yaml:"policy"`
	// Calls of one run.
	MaxCalls int `yaml:"max_calls"`
	// Arguments and answers of one run together.
	MaxMB int `yaml:"max_mb"`
	// Calls of one run at once; further ones wait.
	MaxConcurrent int `yaml:"max_concurrent"`
	// How long a call waits for approval under approve, within the time of one call and that of the
	// run: raise call_timeout and guardrails.max_execution_time with it. 0: nobody is asked, and such
	// calls are refused.
	ApprovalTimeout time.Duration `yaml:"approval_timeout"`
	// Time of one call, approval included.
	CallTimeout time.Duration `yaml:"call_timeout"`
	// Time of all calls of one run together.
	TotalTime time.Duration `yaml:"total_time"`
}

// MCPServer is one server of tools: a command on this host, or an address.
type MCPServer struct {
	// Name, the folder of its tools.
	Name string `yaml:"name" sample:"wiki"`
	// Program to start, which speaks on its standard input and output; or
	Command string `yaml:"command"`
	// Arguments of command.
	Args []string `yaml:"args"`
	// Environment of command, besides PATH, HOME and LANG. NAME_file: PATH reads a value from a file.
	Env map[string]Secret `yaml:"env"`
	// User that command runs as; only root may say so. Default: the worker's own.
	User string `yaml:"user"`
	// address of a server that runs already.
	URL string `yaml:"url" sample:"https://wiki.example.org/mcp"`
	// Headers sent to url. NAME_file: PATH reads a value from a file.
	Headers map[string]Secret `yaml:"headers"`
	// stdio, http or sse. Default: by command or url.
	ConnectionType string `yaml:"connection_type"`
	// False leaves it out.
	Enabled *bool `yaml:"enabled"`
	// Time of one call.
	Timeout time.Duration `yaml:"timeout"`
	// Who shares one connection: shared, tenant or session.
	Scope string `yaml:"scope"`
}
