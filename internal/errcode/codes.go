package errcode

// The tables in table.go say what each code means.

// Errors in requests, at every interface.
const (
	BadArguments       = "bad_arguments"
	BadBody            = "bad_body"
	BadData            = "bad_data"
	BadEvent           = "bad_event"
	BadForm            = "bad_form"
	BadJSON            = "bad_json"
	BadMediaType       = "bad_media_type"
	BadName            = "bad_name"
	BadParameter       = "bad_parameter"
	BadReplyTo         = "bad_replyto"
	BadSubject         = "bad_subject"
	BodyTimeout        = "body_timeout"
	MethodNotAllowed   = "method_not_allowed"
	NotFound           = "not_found"
	PreconditionFailed = "precondition_failed"
	TooLarge           = "too_large"
)

// Authentication and authorization.
const (
	Forbidden      = "forbidden"
	HostRefused    = "host_refused"
	InSettings     = "in_settings" // the tenant is from the settings, and cannot be removed
	NotAllowed     = "not_allowed"
	OriginRefused  = "origin_refused"
	TenantMismatch = "tenant_mismatch"
	Unauthorized   = "unauthorized"
	UnknownTenant  = "unknown_tenant"
	UnknownToken   = "unknown_token"
)

// The condition of the fleet.
const (
	BacklogFull   = "backlog_full"
	Busy          = "busy"
	Internal      = "internal"
	NotDrainable  = "not_drainable"
	StorageFull   = "storage_full"
	Stopping      = "stopping"
	Unavailable   = "unavailable"
	UnknownWorker = "unknown_worker"
)

// Submissions, the records of tasks, and tasks that the fleet could not run.
const (
	AttemptsExhausted = "attempts_exhausted"
	Cancelled         = "cancelled"
	DiskFull          = "disk_full"
	Expired           = "expired"
	FleetError        = "fleet_error"
	InvalidResult     = "invalid_result"
	NotRedrivable     = "not_redrivable"
	NotRetryable      = "not_retryable"
	OtherData         = "other_data" // an earlier submission with the same key had other data
	UnknownArtifact   = "unknown_artifact"
	UnknownSchema     = "unknown_schema"
	UnknownTask       = "unknown_task"
	WorkerLost        = "worker_lost"
)

// Schedules, triggers and webhooks.
const (
	AutomationExists  = "automation_exists"
	AutomationLimit   = "automation_limit"
	UnknownAutomation = "unknown_automation"
)

// Workflows.
const (
	BadAnswer          = "bad_answer"
	BadWorkflow        = "bad_workflow"
	ExpressionFailed   = "expression_failed"
	NotWaiting         = "not_waiting"
	RunActive          = "run_active"
	StepResultTooLarge = "step_result_too_large"
	StepTimeout        = "step_timeout"
	UnknownRun         = "unknown_run"
	UnknownStep        = "unknown_step"
	WorkflowTimeout    = "workflow_timeout"
	WorkflowTooLarge   = "workflow_too_large"
)

// Tasks that end before their program runs.
const (
	BadFile           = "bad_file"
	Blocked           = "blocked"
	CodeRequired      = "code_required"
	FolderNotImported = "folder_not_imported"
	GuardrailRefused  = "guardrail_refused"
	LimitTooLarge     = "limit_too_large"
	NotSupported      = "not_supported"
	Refused           = "refused"
	TierUnavailable   = "tier_unavailable"
	UnknownModel      = "unknown_model"
)

// Failures of programs.
const (
	ChannelBroken  = "channel_broken"
	CPULimit       = "cpu_limit"
	Exception      = "exception"
	ExitCode       = "exit_code"
	MemoryLimit    = "memory_limit"
	ResultTooLarge = "result_too_large"
	SandboxDied    = "sandbox_died"
	Signal         = "signal"
	SyntaxError    = "syntax_error"
	Timeout        = "timeout"
	WorkspaceLimit = "workspace_limit"
	WorkspaceQuota = "workspace_quota"
)

// Tool calls and approvals.
const (
	AlreadyAnswered      = "already_answered"
	ApprovalOver         = "approval_over"
	ApprovalRequired     = "approval_required"
	InDoubt              = "in_doubt"
	NoTools              = "no_tools"
	OverBudget           = "over_budget"
	TooManyRegistrations = "too_many_registrations"
	ToolChanged          = "tool_changed"
	ToolFailed           = "tool_failed"
	ToolTaken            = "tool_taken"
	Unknown              = "unknown" // the tool or argument that a program names does not exist
	UnknownApproval      = "unknown_approval"
	UnknownCall          = "unknown_call"
	UnknownRegistration  = "unknown_registration"
	UnknownTool          = "unknown_tool"
)

// Sessions.
const (
	UnknownCheckpoint = "unknown_checkpoint"
	UnknownSession    = "unknown_session"
)

// Workspaces and their state documents.
const (
	BadPath          = "bad_path"
	BadState         = "bad_state"
	BadStateFile     = "bad_state_file"
	Conflict         = "conflict"
	Corrupt          = "corrupt"
	NoKey            = "no_key"
	NoMirror         = "no_mirror"
	NoWorkspaces     = "no_workspaces"
	QuotaExceeded    = "quota_exceeded"
	StateConflict    = "state_conflict"
	StateDisabled    = "state_disabled"
	UnknownFile      = "unknown_file"
	UnknownState     = "unknown_state"
	UnknownPin       = "unknown_pin"
	UnknownVersion   = "unknown_version"
	WorkspaceDeleted = "workspace_deleted"
	WorkspaceExists  = "workspace_exists"
)

// Why a model wrote no program.
const (
	ModelBadRequest   = "model_bad_request"
	ModelBadResponse  = "model_bad_response"
	ModelNoProgram    = "model_no_program"
	ModelOverBudget   = "model_over_budget"
	ModelRateLimited  = "model_rate_limited"
	ModelRefused      = "model_refused"
	ModelTimeout      = "model_timeout"
	ModelTooLong      = "model_too_long"
	ModelUnauthorised = "model_unauthorised"
	ModelUnavailable  = "model_unavailable"
	ModelUnknown      = "model_unknown"
)

// Errors that clients create.
const (
	HTTPOnly           = "http_only"
	NATSOnly           = "nats_only"
	UnexpectedResponse = "unexpected_response"

	// Errors that only the Python client (clients/python) creates.
	BadConfiguration = "bad_configuration"
	BadText          = "bad_text"
	BadTool          = "bad_tool"
	FleetSetting     = "fleet_setting"
	NoFleet          = "no_fleet"
	NoPackage        = "no_package"
	NoProgram        = "no_program"
	Unreachable      = "unreachable"
)

// Skills.
const (
	BadSkill      = "bad_skill"
	SkillConflict = "skill_conflict"
	SkillFailed   = "skill_failed"
	SkillLimit    = "skill_limit"
	UnknownSkill  = "unknown_skill"
)
