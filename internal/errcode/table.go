package errcode

import "net/http"

// Statuses of tasks, as in package schemas.
var (
	failed    = []string{"failed"}
	blocked   = []string{"blocked"}
	timeout   = []string{"timeout"}
	cancelled = []string{"cancelled"}
	expired   = []string{"expired"}
	dead      = []string{"dead"}
)

// Table is every error code, once.
var Table = []Group{
	{"Requests", requests},
	{"Access", access},
	{"The fleet's condition", condition},
	{"Tasks and their records", tasks},
	{"Tasks that end before their program runs", refusals},
	{"Programs", programs},
	{"Tool calls and approvals", tools},
	{"Workspaces", workspaces},
	{"Models", models},
	{"Clients", clients},
}

var requests = []Error{
	{
		Code: BadArguments, Tool: true, Client: true,
		Meaning: "The arguments of a tool do not fit its schema.",
		Action:  "Correct the argument that the message names.",
	},
	{
		Code: BadBody, HTTP: http.StatusBadRequest,
		Meaning: "The connection ended before the whole body arrived.",
		Action:  "Send the request again.",
	},
	{
		Code: BadData, HTTP: http.StatusBadRequest, Task: blocked,
		Meaning: "The data of a task, or the body of a request, do not fit their schema.",
		Action:  "Correct the place that `path` names; the schema is `schemas/task.v1.json`.",
	},
	{
		Code: BadEvent, HTTP: http.StatusBadRequest, Task: blocked, Client: true,
		Meaning: "The request is not a CloudEvent that carries a task.",
		Action:  "Correct the attribute that `path` names.",
	},
	{
		Code: BadForm, HTTP: http.StatusBadRequest,
		Meaning: "The multipart form of an upload cannot be read.",
		Action:  "Correct the part that `cause` names.",
	},
	{
		Code: BadJSON, HTTP: http.StatusBadRequest,
		Meaning: "The body is not JSON, or not the object that the address expects.",
		Action:  "Correct the body at the position in the message.",
	},
	{
		Code: BadMediaType, HTTP: http.StatusUnsupportedMediaType,
		Meaning: "The address does not accept this Content-Type or Content-Encoding.",
		Action:  "Send one of the media types that the hint lists, uncompressed.",
	},
	{
		Code: BadName, HTTP: http.StatusBadRequest, Task: blocked, Client: true,
		Meaning: "A name of a tenant, workspace, session or pool has characters or a length that are not allowed.",
		Action:  "Use 1 to 63 of a–z, 0–9 and `-`, beginning with a letter or digit.",
	},
	{
		Code: BadParameter, HTTP: http.StatusBadRequest, Client: true,
		Meaning: "A query parameter or header cannot be parsed, or is out of range.",
		Action:  "Correct the parameter that `path` names.",
	},
	{
		Code: BadReplyTo, HTTP: http.StatusBadRequest, Task: blocked,
		Meaning: "The result cannot be sent to the subject in `replyto`.",
		Action:  "Use `_INBOX.<tenant>.…` or `notify.<tenant>.reply.…`.",
	},
	{
		Code: BadSubject,
		Meaning: "A message arrived on a subject that belongs to no pool, priority and tenant; it is in the " +
			"dead-letter queue.",
		Action: "Publish to `tasks.<pool>.<priority>.<tenant>`.",
	},
	{
		Code: BodyTimeout, HTTP: http.StatusRequestTimeout,
		Meaning: "The body arrived too slowly.",
		Action:  "Send the request again over a faster connection, or in smaller parts.",
	},
	{
		Code: MethodNotAllowed, HTTP: http.StatusMethodNotAllowed,
		Meaning: "The address exists, but not for this method.",
		Action:  "Use a method of the Allow header.",
	},
	{
		Code: NotFound, HTTP: http.StatusNotFound,
		Meaning: "There is no such address.",
		Action:  "Check the path of the URL.",
	},
	{
		Code: PreconditionFailed, HTTP: http.StatusPreconditionFailed,
		Meaning: "The file or state document is not the version that If-Match or If-None-Match requires.",
		Action:  "Read it again and repeat the change with the new ETag.",
	},
	{
		Code: TooLarge, HTTP: http.StatusRequestEntityTooLarge, Task: blocked,
		Meaning: "The body, batch, event or state document exceeds its limit.",
		Action:  "Send less, or put large data into a workspace.",
	},
}

var access = []Error{
	{
		Code: Forbidden, HTTP: http.StatusForbidden, Tool: true,
		Meaning: "The token has not the scope for this request, or the task may not use this tool.",
		Action:  "Use a token with the scope that `cause` names, or ask the operator to change the policy.",
	},
	{
		Code: HostRefused, HTTP: http.StatusForbidden,
		Meaning: "The Host header names another server.",
		Action:  "Add the name to `http.allowed_hosts`.",
	},
	{
		Code: NotAllowed, HTTP: http.StatusForbidden, Task: blocked,
		Meaning: "The tenant's policy does not allow this pool, priority, limit or host.",
		Action:  "Ask for less, or ask the operator to change the policy.",
	},
	{
		Code: OriginRefused, HTTP: http.StatusForbidden,
		Meaning: "A web page of this origin may not call the fleet.",
		Action:  "Add the origin to `http.allowed_origins`.",
	},
	{
		Code: TenantMismatch, HTTP: http.StatusForbidden, Task: blocked,
		Meaning: "The event names another tenant than the sender's.",
		Action:  "Leave the attribute `tenant` out, or use the other tenant's credentials.",
	},
	{
		Code: Unauthorized, HTTP: http.StatusUnauthorized,
		Meaning: "The request has no bearer token, or an unknown one.",
		Action:  "Set `CODEFLEET_TOKEN`, or use the fleet's `fleet.json`.",
	},
	{
		Code: UnknownTenant, HTTP: http.StatusForbidden, Task: blocked,
		Meaning: "The fleet has no such tenant.",
		Action:  "Correct the tenant, or add it to `tenants`.",
	},
}

var condition = []Error{
	{
		Code: BacklogFull, HTTP: http.StatusTooManyRequests,
		Meaning: "Too many tasks of the tenant are waiting.",
		Action:  "Try again after `Retry-After`, or add workers.",
	},
	{
		Code: Busy, HTTP: http.StatusTooManyRequests,
		Meaning: "Too many uploads are under way.",
		Action:  "Try again after `Retry-After`.",
	},
	{
		Code: Internal, HTTP: http.StatusInternalServerError, Tool: true,
		Meaning: "The fleet failed at something that should not fail.",
		Action:  "Report it with the lines of the log that have the same trace id.",
	},
	{
		Code: Stopping, HTTP: http.StatusServiceUnavailable,
		Meaning: "The process is shutting down.",
		Action:  "Send the request again; another process answers.",
	},
	{
		Code: Unavailable, HTTP: http.StatusServiceUnavailable, Tool: true, Client: true,
		Meaning: "The queue, the object store, the fleet or a tool's server did not answer, or not correctly.",
		Action:  "Try again; submissions with an idempotency key or event id are safe to repeat.",
	},
}

var tasks = []Error{
	{
		Code: AttemptsExhausted, Task: dead,
		Meaning: "The fleet could not run the task in any of its attempts.",
		Action:  "See the attempts in `codefleet status ID`.",
	},
	{
		Code: Cancelled, Task: cancelled,
		Meaning: "The task was cancelled.",
		Action:  "Submit it again if that was not intended.",
	},
	{
		Code: DiskFull, Task: dead,
		Meaning: "The disk of a worker's data directory has no room for the task, on each worker that tried.",
		Action:  "Free space there, then submit the task again.",
	},
	{
		Code: Expired, HTTP: http.StatusBadRequest, Task: expired,
		Meaning: "The `expirytime` passed before the task ended.",
		Action:  "Submit it again with a later time, or without one.",
	},
	{
		Code: FleetError, Task: dead,
		Meaning: "The fleet failed in a way that another attempt cannot mend.",
		Action:  "Read `cause`; report it if it is not a matter of the configuration.",
	},
	{
		Code: InvalidResult, Task: dead,
		Meaning: "The result does not fit its schema.",
		Action:  "Report it: it is a bug of the fleet or of a plugin.",
	},
	{
		Code: OtherData, HTTP: http.StatusConflict,
		Meaning: "The same source and key were used before, with other data.",
		Action:  "Use a new event id or idempotency key for a new task.",
	},
	{
		Code: UnknownArtifact, HTTP: http.StatusNotFound,
		Meaning: "The task has no artifact of this name.",
		Action:  "See `artifacts` of its result.",
	},
	{
		Code: UnknownSchema, HTTP: http.StatusNotFound,
		Meaning: "There is no schema of this name.",
		Action:  "Use one that the hint lists.",
	},
	{
		Code: UnknownTask, HTTP: http.StatusNotFound, Client: true,
		Meaning: "The tenant has no task with this id, or it ended so long ago that it is no longer kept.",
		Action:  "See `codefleet tasks`.",
	},
	{
		Code: WorkerLost, Task: dead,
		Meaning: "The worker was lost in each attempt.",
		Action:  "See `codefleet workers`; a program that kills its host's memory does this, too.",
	},
}

var refusals = []Error{
	{
		Code: BadFile, Task: blocked,
		Meaning: "A file of the task has a path that cannot be in a workspace.",
		Action:  "Use a relative path without `..`.",
	},
	{
		Code: Blocked, Task: blocked,
		Meaning: "A check of the program refused it and gave no code.",
		Action:  "Read the message.",
	},
	{
		Code: CodeRequired, Task: blocked,
		Meaning: "No model wrote the program, and the rules do not understand the whole description.",
		Action:  "Finish the program in `hint` and send it as `code`.",
	},
	{
		Code: FolderNotImported, Task: blocked,
		Meaning: "The directory of `codefleet up --workspace` has files that a workspace cannot hold.",
		Action:  "Remove what the message names, or list it in `.workspaceignore`.",
	},
	{
		Code: LimitTooLarge, Task: blocked,
		Meaning: "The task asks for more than a box of the worker can have.",
		Action:  "Ask for less, or name a pool with larger boxes.",
	},
	{
		Code: NotSupported, Task: blocked,
		Meaning: "The fleet runs no skills and no workflows yet.",
		Action:  "Send `code` or `description`.",
	},
	{
		Code: Refused, Task: blocked,
		Meaning: "A plugin refused the task, its program or its result. Plugins may use other codes.",
		Action:  "Read the message and the hint, which are the plugin's.",
	},
	{
		Code: TierUnavailable, Task: blocked,
		Meaning: "The task asks for a stronger sandbox than the worker has.",
		Action:  "Leave `min_tier` out, or name a pool whose workers have it.",
	},
	{
		Code: UnknownModel, Task: blocked,
		Meaning: "The fleet has no model profile of this name.",
		Action:  "Use a profile that the hint lists, or leave `model` out.",
	},
}

var programs = []Error{
	{
		Code: ChannelBroken, Task: failed,
		Meaning: "The program closed, or wrote to, the descriptors that its result travels on.",
		Action:  "Leave descriptors alone that the program has not opened.",
	},
	{
		Code: CPULimit, Task: failed,
		Meaning: "The program used up its processor time.",
		Action:  "Ask for more with `limits`, or do less in one task.",
	},
	{
		Code: Exception, Task: failed,
		Meaning: "An exception was not caught.",
		Action:  "Correct the line in `line`; the traceback is in `stderr`.",
	},
	{
		Code: ExitCode, Task: failed,
		Meaning: "The program exited with a code other than 0.",
		Action:  "Read its output.",
	},
	{
		Code: MemoryLimit, Task: failed,
		Meaning: "The program needed more memory than its limit.",
		Action:  "Raise `limits.memory_mb`, or work on smaller pieces.",
	},
	{
		Code: ResultTooLarge, Task: failed, Tool: true,
		Meaning: "The result of a program, or of a tool call, exceeds its limit as JSON.",
		Action:  "Return less, or write to a file of the workspace.",
	},
	{
		Code: SandboxDied, Task: failed,
		Meaning: "The sandbox ended while the program ran.",
		Action:  "Read `cause`; it repeats if the program does it.",
	},
	{
		Code: Signal, Task: failed,
		Meaning: "A signal killed the program: a crash of a native module, or its own doing.",
		Action:  "Read the message, which names the signal.",
	},
	{
		Code: SyntaxError, Task: failed,
		Meaning: "The program is not Python.",
		Action:  "Correct the line in `line`.",
	},
	{
		Code: Timeout, Task: timeout, Tool: true,
		Meaning: "The program, or a tool call, did not end within its time.",
		Action:  "Raise `limits.timeout_s`, or do less in one task.",
	},
	{
		Code: WorkspaceLimit, Task: []string{"failed", "blocked"},
		Meaning: "The workspace and the files of the task exceed the disk of the box, or their limit in it.",
		Action:  "Remove files, or raise `limits.workspace_mb`.",
	},
	{
		Code: WorkspaceQuota, Task: failed,
		Meaning: "The program ran, but its changes would exceed the workspace's quota; they were not committed.",
		Action:  "Remove files from the workspace, or ask for a larger quota.",
	},
}

var tools = []Error{
	{
		Code: AlreadyAnswered, HTTP: http.StatusConflict, Exit: ExitRefused,
		Meaning: "The approval has an answer already.",
		Action:  "Nothing: the first answer counts.",
	},
	{
		Code: ApprovalOver, HTTP: http.StatusConflict, Exit: ExitRefused,
		Meaning: "The call no longer waits for approval: it expired, or its task ended.",
		Action:  "Submit the task again.",
	},
	{
		Code: ApprovalRequired, Tool: true,
		Meaning: "The call needs a person's approval, and there was none in time.",
		Action:  "Run the task again while a person can answer (`codefleet approvals`).",
	},
	{
		Code: InDoubt, Tool: true,
		Meaning: "An earlier run may have made the call, and the tool is not safe to repeat.",
		Action:  "Find out whether it took effect before the task is submitted again.",
	},
	{
		Code: NoTools, HTTP: http.StatusNotImplemented,
		Meaning: "This process serves no catalogue of tools.",
		Action:  "Give it the settings of the object store, or `execution.servers_dir`.",
	},
	{
		Code: OverBudget, Tool: true,
		Meaning: "The task made too many calls, or moved too many bytes or spent too much time in them.",
		Action:  "Make fewer calls, or raise the tenant's budget.",
	},
	{
		Code: ToolChanged, Tool: true,
		Meaning: "The tool's definition is no longer the approved one.",
		Action:  "See the difference with `codefleet tools approve SERVER/TOOL`, and approve it again.",
	},
	{
		Code: ToolFailed, Tool: true,
		Meaning: "The tool itself reported an error.",
		Action:  "Read the message, which is the tool's.",
	},
	{
		Code: Unknown, Tool: true,
		Meaning: "There is no such tool or argument.",
		Action:  "Use the nearest name, which the message gives.",
	},
	{
		Code: UnknownApproval, HTTP: http.StatusNotFound,
		Meaning: "No such call of the task waits for approval.",
		Action:  "See `codefleet approvals`.",
	},
	{
		Code: UnknownTool, HTTP: http.StatusNotFound, Client: true,
		Meaning: "The catalogue has no such tool.",
		Action:  "Use the nearest name, which the message gives; `codefleet tools list` has all.",
	},
}

var workspaces = []Error{
	{
		Code: BadPath, HTTP: http.StatusBadRequest, Client: true,
		Meaning: "The path cannot be that of a file in a workspace.",
		Action:  "Use a relative path without `..`.",
	},
	{
		Code: BadState, HTTP: http.StatusBadRequest,
		Meaning: "The content is not the JSON or YAML that the state document's name says; " +
			"with the HTTP status 409 it is the stored document that is damaged.",
		Action: "Correct the content; `codefleet state set` replaces a damaged document.",
	},
	{
		Code: BadStateFile, HTTP: http.StatusBadRequest, Client: true,
		Meaning: "The name cannot be that of a state document.",
		Action:  "Use `state.json`, or `NAME.json` or `NAME.yaml` at the top of the workspace or below `state/`.",
	},
	{
		Code: Conflict, HTTP: http.StatusConflict,
		Meaning: "Another commit changed the same files meanwhile.",
		Action:  "Read the files in `paths` again and repeat the change.",
	},
	{
		Code: Corrupt, HTTP: http.StatusInternalServerError,
		Meaning: "The stored version is damaged.",
		Action:  "Run `codefleet workspace check`, then `codefleet workspace repair`.",
	},
	{
		Code: NoKey, HTTP: http.StatusInternalServerError, Task: dead,
		Meaning: "The workspace is encrypted with a key that the process does not have.",
		Action:  "Give its secret in `workspaces.encryption`, or in the tenant's `encryption`.",
	},
	{
		Code: NoMirror, HTTP: http.StatusNotFound,
		Meaning: "The fleet keeps no mirror of workspaces.",
		Action:  "Set `workspaces.mirror`.",
	},
	{
		Code: NoWorkspaces, HTTP: http.StatusNotImplemented,
		Meaning: "This process has no object store.",
		Action:  "Give it `s3.endpoint` and its credentials.",
	},
	{
		Code: QuotaExceeded, HTTP: http.StatusRequestEntityTooLarge, Exit: ExitRefused,
		Meaning: "The change would exceed the workspace's quota.",
		Action:  "Remove files from the workspace, or ask for a larger quota.",
	},
	{
		Code: UnknownFile, HTTP: http.StatusNotFound,
		Meaning: "The workspace has no file at this path.",
		Action:  "See `codefleet workspace ls`.",
	},
	{
		Code: UnknownState, HTTP: http.StatusNotFound,
		Meaning: "The workspace has no state document of this name.",
		Action:  "Create it with `codefleet state set`.",
	},
	{
		Code: UnknownVersion, HTTP: http.StatusNotFound,
		Meaning: "The workspace has no such version, or it is no longer kept.",
		Action:  "See `codefleet workspace log`.",
	},
	{
		Code: WorkspaceDeleted, HTTP: http.StatusConflict,
		Meaning: "The workspace was deleted, or created again, meanwhile.",
		Action:  "Start from what is there now.",
	},
	{
		Code: WorkspaceExists, HTTP: http.StatusConflict,
		Meaning: "There is a workspace of this name already.",
		Action:  "Use another name.",
	},
}

// The codes of models are in the text of a finding (`guardrails` of a result), or in the cause of
// code_required: a task does not end because of its model alone.
var models = []Error{
	{
		Code:    ModelBadAnswer,
		Meaning: "The model's endpoint did not answer in the protocol.",
		Action:  "Check `llm.base_url`.",
	},
	{
		Code:    ModelBadRequest,
		Meaning: "The endpoint rejected the request.",
		Action:  "Read the message, which is the endpoint's.",
	},
	{
		Code:    ModelNoProgram,
		Meaning: "The model answered without a program.",
		Action:  "Describe the task more precisely, or use another model.",
	},
	{
		Code:    ModelOverBudget,
		Meaning: "The tokens of the task or tenant, or the quota at the provider, are used up.",
		Action:  "Raise the budget.",
	},
	{
		Code:    ModelRateLimited,
		Meaning: "The endpoint limits the rate of requests.",
		Action:  "Try again later, or raise the rate at the provider.",
	},
	{
		Code:    ModelRefused,
		Meaning: "The model, or a content filter, refused the description.",
		Action:  "Describe the task in other words.",
	},
	{
		Code:    ModelTimeout,
		Meaning: "The model did not finish in time.",
		Action:  "Raise `llm.timeout`, or use a faster model.",
	},
	{
		Code:    ModelTooLong,
		Meaning: "The request or the answer exceeds what the model can hold.",
		Action:  "Raise `llm.max_tokens`, or split the task.",
	},
	{
		Code:    ModelUnauthorised,
		Meaning: "The endpoint does not accept the key.",
		Action:  "Check the key; `codefleet config show` says where it comes from.",
	},
	{
		Code:    ModelUnavailable,
		Meaning: "The endpoint cannot be reached, or failed.",
		Action:  "Check `llm.base_url` and the provider.",
	},
	{
		Code:    ModelUnknown,
		Meaning: "The endpoint does not know the model, the deployment or the address.",
		Action:  "Check `llm.model` and `llm.base_url` with `codefleet config show`.",
	},
}

var clients = []Error{
	{
		Code: HTTPOnly, HTTP: http.StatusNotImplemented, Client: true,
		Meaning: "The call is served over HTTP only, and the client is connected over NATS.",
		Action:  "Give the client the fleet's `http://` address.",
	},
	{
		Code: NATSOnly, HTTP: http.StatusNotImplemented, Client: true,
		Meaning: "The call is served over NATS only, and the client is connected over HTTP.",
		Action:  "Give the client the fleet's `nats://` address.",
	},
	{
		Code: NoFleet, Client: true,
		Meaning: "The Python client found no fleet: no URL, and no `fleet.json`.",
		Action:  "Start one with `codefleet up`, or pass `url` and `token`.",
	},
	{
		Code: Unreachable, Client: true,
		Meaning: "The Python client could not reach the fleet.",
		Action:  "Check the address; `codefleet doctor` checks the host.",
	},
	{
		Code: UnexpectedAnswer, Client: true,
		Meaning: "The address answered, but not as a fleet does.",
		Action:  "Check the address and proxies on the way.",
	},
}
