package errcode

import (
	"strconv"
	"strings"
)

// Table lists every error code once.
var Table = []Group{
	{"Requests", requests},
	{"Access", access},
	{"The fleet's condition", condition},
	{"Tasks and their records", tasks},
	{"Schedules, triggers and webhooks", automations},
	{"Workflows", workflows},
	{"Tasks that end before their program runs", refusals},
	{"Programs", programs},
	{"Tool calls and approvals", tools},
	{"Workspaces", workspaces},
	{"Skills", skills},
	{"Models", models},
	{"Clients", clients},
}

// row returns the row of a code. places lists where the code occurs, as words: an HTTP status, statuses of tasks, tool,
// client. The word exit=N sets the exit code.
func row(code, places, meaning, action string) Error {
	e := Error{Code: code, Meaning: meaning, Action: action}
	for word := range strings.FieldsSeq(places) {
		status, err := strconv.Atoi(word)
		exit, isExit := strings.CutPrefix(word, "exit=")
		switch {
		case err == nil:
			e.HTTP = status
		case isExit:
			e.Exit, _ = strconv.Atoi(exit)
		case word == "tool":
			e.Tool = true
		case word == "client":
			e.Client = true
		default:
			e.Task = append(e.Task, word)
		}
	}
	return e
}

var requests = []Error{
	row(BadArguments, "tool client", "The arguments of a tool do not match its schema.",
		"Correct the argument that the message names."),
	row(BadBody, "400", "The connection ended before the whole body arrived, or the request takes no body.",
		"Send the request again, in the second case with its parameters in the URL."),
	row(BadData, "400 blocked", "The task's data or the request's body does not match its schema.",
		"Correct the value at `path`; for a task, the schema is `schemas/task.v1.json`."),
	row(BadEvent, "400 blocked client",
		"The request is not a valid CloudEvent, or an attribute of the task is not valid.",
		"Correct the attribute in `path`."),
	row(BadForm, "400", "The multipart form of an upload cannot be read.", "Correct the part that `cause` names."),
	row(BadJSON, "400", "The body is not JSON, or not the JSON object that the endpoint expects.",
		"Correct the body at the position in `cause`, or the value at `path`."),
	row(BadMediaType, "415", "The endpoint does not accept this Content-Type or Content-Encoding.",
		"Send a media type that `/openapi.json` lists for the endpoint, uncompressed."),
	row(BadName, "400 blocked client",
		"The name of a tenant, workspace, session or task pool has an invalid character or length.",
		"Use 1 to 63 letters (a–z, A–Z), digits, `_` and `-`, beginning with a letter or digit; for a task pool, only "+
			"lower-case letters, digits and `-`."),
	row(BadParameter, "400 client", "A query parameter or header cannot be parsed, or is out of range.",
		"Correct the parameter in `path`."),
	row(BadReplyTo, "400 blocked", "The result cannot be sent to the subject in `replyto`.",
		"Use `_INBOX.<tenant>.…` or `notify.<tenant>.reply.…`."),
	row(BadSubject, "", "A message arrived on a subject without a valid task pool, priority and tenant; "+
		"it was moved to the dead-letter queue.", "Publish to `tasks.<pool>.<priority>.<tenant>`."),
	row(BodyTimeout, "408", "The body arrived too slowly.",
		"Send the request again over a faster connection, or in smaller parts."),
	row(MethodNotAllowed, "405", "The endpoint does not support this method.", "Use a method in the Allow header."),
	row(NotFound, "404", "The fleet has no endpoint at this path.", "Check the path of the URL."),
	row(PreconditionFailed, "412",
		"The file does not have the version that If-Match or If-None-Match requires.",
		"Read it again, and repeat the change with the new ETag."),
	row(TooLarge, "413", "The body, batch, event or state document exceeds its limit.",
		"Send less, or put large data into a workspace."),
}

var access = []Error{
	row(Forbidden, "403 tool", "The token lacks the scope for this request, or the task may not use this tool.",
		"Use a token with the scope that `cause` names, or ask the operator to change the policy."),
	row(HostRefused, "403", "The server does not accept the name in the Host header.",
		"Add the name to `http.allowed_hosts`."),
	row(InSettings, "409", "The tenant is from the settings, and cannot be removed at run time.",
		"Remove it from `tenants` in the settings."),
	row(NotAllowed, "403 blocked", "The tenant's policy does not allow this task pool, priority, limit or host.",
		"Request less, or ask the operator to change the policy."),
	row(OriginRefused, "403", "Web pages of this origin may not call the fleet.",
		"Add the origin to `http.allowed_origins`."),
	row(TenantMismatch, "403 blocked", "The event names a tenant other than the sender's.",
		"Omit the attribute `tenant`, or use the other tenant's credentials."),
	row(Unauthorized, "401", "The request has no bearer token, or one that is unknown, expired or revoked.",
		"Set `CODEFLEET_TOKEN`, or use the fleet's `fleet.json`."),
	row(UnknownToken, "404", "The fleet has no token with this id that was created at run time.",
		"See `codefleet tokens`; tokens of the settings are removed there."),
	row(UnknownTenant, "403 blocked", "The fleet has no such tenant.",
		"Correct the tenant's name, or create the tenant (`codefleet tenants add`)."),
}

var condition = []Error{
	row(BacklogFull, "429", "Too many tasks of the tenant are queued.",
		"Try again after `Retry-After`, add workers, or increase `queue.backlog` or the tenant's `backlog`."),
	row(Busy, "429", "Too many uploads are in progress, or "+
		"other requests kept changing the schedule at the same time.", "Try again."),
	row(Internal, "500 tool", "The fleet failed unexpectedly.",
		"Report it, with the fleet's log lines of that time."),
	row(NotDrainable, "409",
		"The worker does not obey orders to drain: it is a part of `codefleet up`, or an older version.",
		"End its process with SIGTERM, which drains it."),
	row(Stopping, "503", "The process is shutting down.", "Send the request again; another process will serve it."),
	row(StorageFull, "429", "The large data of the tenant's unfinished tasks fills its share of the queue's storage.",
		"Wait until tasks have ended, pass large data in a workspace, or increase `queue.payload_mb`."),
	row(Unavailable, "503 tool client",
		"The queue, the object store, the fleet or a tool's server did not respond, or its response was invalid.",
		"Try again; submissions with an idempotency key or event id are safe to repeat."),
	row(UnknownWorker, "404", "No worker with this name is running.", "See `codefleet workers`."),
}

var tasks = []Error{
	row(AttemptsExhausted, "dead", "All attempts to run the task failed.", "See the attempts in `codefleet status ID`."),
	row(Cancelled, "cancelled", "The task was cancelled.", "Submit it again if that was not intended."),
	row(DiskFull, "dead",
		"The attempts are used up, and in the last one the disk of the worker's data directory was full.",
		"Free space there, then run `codefleet dead redrive ID`."),
	row(Expired, "400 expired", "The `expirytime` passed before the task ended.",
		"Submit it again with a later time, or without one."),
	row(FleetError, "dead", "The fleet failed in a way that another attempt cannot fix.",
		"Read `cause`; report the error unless the configuration explains it."),
	row(InvalidResult, "dead", "The result does not match its schema.",
		"Report it: it is a bug in the fleet or in a plugin."),
	row(NotRedrivable, "409",
		"The task has no dead letter or cannot be redriven: it is not dead-lettered, has expired, or its record or "+
			"data is no longer kept.",
		"See `codefleet dead`; submit the task again if its record is gone."),
	row(NotRetryable, "409",
		"The task has not ended, it has succeeded, or its submission is no longer kept or not valid.",
		"Wait for its end; `codefleet rerun ID` also runs a successful task again."),
	row(OtherData, "409", "An earlier submission with the same source and key had other data.",
		"Use a new event id or idempotency key for a new task."),
	row(UnknownArtifact, "404", "The task has no artifact of this name.", "See `artifacts` in the task's result."),
	row(UnknownSchema, "404", "The fleet has no schema of this name.", "Use one of the schemas in the hint."),
	row(UnknownTask, "404 client",
		"The tenant has no task with this id, or the task ended so long ago that it is no longer kept.",
		"See `codefleet tasks`."),
	row(WorkerLost, "dead", "The attempts are used up, and the worker of the last one was lost.",
		"See `codefleet workers`; one cause is a program that exhausts its host's memory."),
}

var automations = []Error{
	row(AutomationExists, "409", "The tenant has a different schedule or trigger, or a webhook, with this name.",
		"Choose another name, or remove the other one first."),
	row(AutomationLimit, "409 blocked",
		"The tenant has as many schedules, triggers, webhooks or active workflow runs as it may have.",
		"Cancel workflow runs, or remove schedules, triggers or webhooks, that are not needed."),
	row(UnknownAutomation, "404", "The tenant has no schedule, trigger or webhook with this name.",
		"Check the name; `codefleet schedules ls` lists the schedules."),
}

// workflows lists codes of requests about workflows, and codes in the error of a run or of a step.
var workflows = []Error{
	row(BadAnswer, "400", "The answer does not fit the form of the step.", "Correct the field in `path`."),
	row(BadWorkflow, "400 blocked", "The workflow or its inputs are not valid.",
		"Correct the value at `path`; the message lists all problems, and docs/workflows.md has the format."),
	row(ExpressionFailed, "", "An expression of the step cannot be evaluated with the values of this run.",
		"Read the message; test with `has(x.y)` for fields that may be absent."),
	row(NotWaiting, "409 exit=4", "The step is not waiting for an answer, or another answer came first.",
		"Read the run: the first answer counts."),
	row(RunActive, "409 exit=4", "The run has not ended.", "Wait for its end, or cancel the run."),
	row(StepResultTooLarge, "", "An expression uses the result of a step that is larger than 256 KiB.",
		"Write large data into a file of the workspace, and return its path."),
	row(StepTimeout, "", "The step was not done within its `timeout`.", "Raise it, or do less in one step."),
	row(UnknownRun, "404", "The tenant has no workflow run with this id, or it is no longer kept.",
		"See `codefleet workflow runs`."),
	row(UnknownStep, "404", "The workflow run has no such step, or cannot be repeated from it.",
		"See `codefleet workflow status RUN`."),
	row(WorkflowTimeout, "", "The run did not end within the `timeout` of its workflow.",
		"Raise `timeout`, which is 24h by default."),
	row(WorkflowTooLarge, "", "The record of the run exceeds 256 KiB.", "Use loops with fewer items."),
}

var refusals = []Error{
	row(BadFile, "blocked", "A file of the task has a path that is not valid in a workspace, or that no version has.",
		"Use a relative path without `..`, `servers`, `client`, `lost+found`, `__pycache__`, `.venv` and `node_modules`."),
	row(Blocked, "blocked", "A check refused the program and gave no error code.", "Read the message."),
	row(CodeRequired, "blocked", "No model wrote the program, and the rules do not understand the whole description.",
		"Configure a model, or finish the program in `hint` and send it as `code`."),
	row(GuardrailRefused, "blocked",
		"The guardrails are strict, and the task's program, inputs or result break one; "+
			"`guardrails` lists all findings.",
		"Change the program as the finding says, or ask the operator to set `guardrails.level` to `advise`."),
	row(FolderNotImported, "blocked",
		"The live folder of `codefleet up --workspace` has files that a workspace cannot hold, or the workspace has lost "+
			"versions that the folder has.",
		"Remove what the message names, or list the files in `.workspaceignore`; or bring the workspace's data back."),
	row(LimitTooLarge, "blocked", "The task requests more than a box of the worker can have.",
		"Request less, or use a task pool with larger boxes."),
	row(NotSupported, "blocked client",
		"The worker does not start workflows, or the fleet does not support an argument of the Python client's first "+
			"version.",
		"Use a worker of the fleet's version; pass the program itself, as `code`."),
	row(Refused, "blocked",
		"A plugin refused the task, its program or its result. Plugins may use other codes.",
		"Read the message and the hint, which the plugin wrote."),
	row(TierUnavailable, "blocked", "The task requires a stronger sandbox than the worker has.",
		"Omit `min_tier`, or use a task pool whose workers have the required sandbox."),
	row(UnknownModel, "blocked", "The fleet has no model profile of this name.",
		"Use one of the profiles in the hint, or omit `model`."),
}

var skills = []Error{
	row(BadSkill, "400 client", "The skill is not valid in the Agent Skills format, or programs could not import it.",
		"Correct what `cause` lists; docs/skills.md has the rules."),
	row(SkillConflict, "409", "The name is taken, or another save changed the skill first.",
		"Read the skill, and save again with `base` set to its version."),
	row(SkillFailed, "422 exit=1", "The smoke run of the skill failed, so it was not saved.",
		"Correct the program as `cause` says; the task in `cause` has the output."),
	row(SkillLimit, "413 exit=4", "The tenant's skills have reached the limit on their number or their bytes.",
		"Remove skills that are no longer used."),
	row(UnknownSkill, "404 blocked", "There is no skill of this name or version, or it has no program.",
		"See `codefleet skills`."),
}

var programs = []Error{
	row(ChannelBroken, "failed", "The program closed, or wrote to, the file descriptors that carry its result, or "+
		"replaced functions of Python that report it, such as `json.dumps`.",
		"Use only file descriptors that the program has opened, and do not replace Python's own functions."),
	row(CPULimit, "failed", "The program used up its processor time.",
		"Request more with `limits`, or do less in one task."),
	row(Exception, "failed", "The program did not catch an exception.",
		"Correct the line in `line`; the traceback is in `error.cause`."),
	row(ExitCode, "failed", "The program exited with a code other than 0.", "Read its output."),
	row(MemoryLimit, "failed", "The program needed more memory than its limit, or `eval` or `ast.literal_eval` got a "+
		"text that is nested too deeply for Python's parser.",
		"Raise `limits.memory_mb`, or process the data in smaller pieces."),
	row(ResultTooLarge, "failed tool", "The result of a program or a tool call, as JSON, exceeds its limit.",
		"Return less, or write to a file of the workspace."),
	row(SandboxDied, "failed", "The box ended while the program ran.",
		"Read `cause`; if the program is the cause, another run ends in the same way."),
	row(Signal, "failed", "A signal killed the program, for example because a native module crashed.",
		"Read the message, which names the signal."),
	row(SyntaxError, "failed", "The program is not valid Python.", "Correct the line in `line`."),
	row(Timeout, "timeout tool", "The program or a tool call exceeded its time limit.",
		"Raise `limits.timeout_s`, or do less in one task."),
	row(WorkspaceLimit, "failed blocked",
		"The workspace and the task's files exceed the box's disk or `limits.workspace_mb`, or cannot be measured, "+
			"because the program made a directory unreadable for the worker, or nested directories too deeply.",
		"Remove files, or raise `limits.workspace_mb`. Let programs leave their directories readable."),
	row(WorkspaceQuota, "failed",
		"The program ran, but its changes were not committed, because they would exceed the workspace's quota "+
			"or a limit of all workspaces, such as 255 bytes of a file's name.",
		"Remove files from the workspace, or ask the operator for a larger quota."),
}

var tools = []Error{
	row(AlreadyAnswered, "409 exit=4", "A person has already approved or denied the call.",
		"Do nothing: the first decision counts."),
	row(ApprovalOver, "409 exit=4", "The call no longer waits for approval: it expired, or its task ended.",
		"Submit the task again."),
	row(ApprovalRequired, "tool", "The call needs a person's approval, and did not get it in time; "+
		"or the request for it failed, or `tools.approval_timeout` is 0.",
		"Run the task again while a person can decide (`codefleet approvals`)."),
	row(InDoubt, "tool", "An earlier run may have made the call, and the tool is not safe to repeat.",
		"Find out whether the call took effect before you submit the task again."),
	row(NoTools, "501", "This process has no tool catalogue.",
		"Give it the settings of the object store, or `execution.servers_dir`."),
	row(OverBudget, "tool", "The task's tool calls exceed their limit on number, bytes or time, "+
		"or waited too long for the tenant's `tool_rates`.",
		"Make fewer calls, or ask the operator to raise the limits in `tools`."),
	row(ToolChanged, "tool", "The tool's definition has changed since its approval, or since the program was written.",
		"Run `codefleet tools generate SERVER` if the server has changed the definition, review the change with "+
			"`codefleet tools approve`, then approve it with `codefleet tools approve SERVER/TOOL`. "+
			"If the message names the module that has the current definition, import the tool from there."),
	row(ToolFailed, "tool", "The tool itself returned an error.", "Read the message, which the tool wrote."),
	row(ToolTaken, "409", "A tool of this name exists already, and a registration would shadow it.",
		"Register the tool under another server or another name."),
	row(TooManyRegistrations, "429", "The tenant has too many registrations of tools.",
		"Register several tools at once, or close registrations."),
	row(Unknown, "tool", "The tool or argument does not exist.", "Use the nearest name in the message."),
	row(UnknownApproval, "404", "No such call of the task waits for approval.", "See `codefleet approvals`."),
	row(UnknownCall, "404", "No such call of a registered tool waits for a result: it has one, or has timed out.",
		"Do nothing: the program has the result or an error."),
	row(UnknownRegistration, "404", "The registration of tools has ended, or does not exist.",
		"Register the tools again; the stream of the registration must stay open."),
	row(UnknownTool, "404 client", "The catalogue has no such tool.",
		"Use the nearest name in the message; `codefleet tools list` lists all tools."),
}

var workspaces = []Error{
	row(BadPath, "400 client", "The path is not valid in a workspace.", "Use a relative path without `..`."),
	row(BadState, "400 failed blocked", "The content is not JSON or YAML, as the state document's name requires. "+
		"With the HTTP status 409, the stored document is damaged. "+
		"In a result: the program uses the variable `state`, and the document cannot be read, or the variable cannot be "+
		"saved.",
		"Correct the content; `codefleet state set` replaces a damaged document."),
	row(BadStateFile, "400 blocked client", "The name is not valid for a state document.",
		"Use `state.json`, or `NAME.json` or `NAME.yaml` at the top of the workspace or below `state/`."),
	row(Conflict, "409 exit=4", "Another commit changed the same files.",
		"Read the files in `paths` again, and repeat the change."),
	row(Corrupt, "500", "The stored version is damaged.",
		"Run `codefleet workspace check`, then `codefleet workspace repair`."),
	row(NoKey, "500 dead", "The workspace is encrypted with a key that the process does not have.",
		"Configure its secret in `workspaces.encryption`, or in the tenant's `encryption`."),
	row(NoMirror, "404", "The fleet has no mirror of workspaces.", "Set `workspaces.mirror`."),
	row(NoWorkspaces, "501", "This process has no object store.", "Configure `s3.endpoint` and its credentials."),
	row(QuotaExceeded, "413 exit=4", "The change would exceed the workspace's quota.",
		"Remove files from the workspace, or ask the operator for a larger quota."),
	row(StateConflict, "409 exit=4",
		"The state document's version is not the one that the request names; both are in `cause`.",
		"Read the document again, and repeat the change on its current version."),
	row(StateDisabled, "403", "The operator has disabled state documents.", "Set `execution.state.enabled`."),
	row(UnknownCheckpoint, "404", "The session has no checkpoint of this id, or it is no longer kept.",
		"See `codefleet sessions show NAME`."),
	row(UnknownSession, "404", "No task that names this session has ended, or its log is no longer kept.",
		"See `codefleet sessions list`; `codefleet run -s NAME` begins a session."),
	row(UnknownFile, "404", "The workspace has no file at this path.", "See `codefleet workspace ls`."),
	row(UnknownState, "404", "The workspace has no state document of this name.",
		"Create it with `codefleet state set`."),
	row(UnknownPin, "400", "The request names a pin that the workspace does not have.",
		"See `codefleet workspace pin`."),
	row(UnknownVersion, "404", "The workspace has no such version, or it is no longer kept.",
		"See `codefleet workspace log`."),
	row(WorkspaceDeleted, "409", "The workspace was deleted before the change, or has no version with its generation.",
		"Read the workspace again before you repeat the change."),
	row(WorkspaceExists, "409", "A workspace of this name already exists.", "Use another name."),
}

// models lists codes that appear in the message of a finding (`guardrails` of a result) or in the cause of
// CodeRequired. A failing model alone does not end a task.
var models = []Error{
	row(ModelBadRequest, "", "The endpoint rejected the request.", "Read the message, which the endpoint wrote."),
	row(ModelBadResponse, "", "The model's endpoint did not respond in the expected protocol.", "Check `llm.base_url`."),
	row(ModelNoProgram, "", "The model's response has no program.",
		"Describe the task more precisely, or use another model."),
	row(ModelOverBudget, "", "The token budget of the task or tenant, or the quota at the provider, is used up.",
		"Raise the budget, or the quota at the provider."),
	row(ModelRateLimited, "", "The endpoint limits the rate of requests.",
		"Try again later, or raise the rate at the provider."),
	row(ModelRefused, "", "The model or a content filter refused the description.",
		"Describe the task in other words."),
	row(ModelTimeout, "", "The model did not finish in time.", "Raise `llm.timeout`, or use a faster model."),
	row(ModelTooLong, "", "The request or the response exceeds the model's token limit.",
		"Raise `llm.max_tokens`, or split the task."),
	row(ModelUnauthorised, "", "The endpoint does not accept the key.",
		"Check the key; `codefleet config show` prints where it comes from."),
	row(ModelUnavailable, "", "The endpoint cannot be reached, or failed.", "Check `llm.base_url` and the provider."),
	row(ModelUnknown, "", "The endpoint does not know the model, the deployment or the URL.",
		"Check `llm.model` and `llm.base_url` with `codefleet config show`."),
}

var clients = []Error{
	row(HTTPOnly, "client exit=3", "The operation is available over HTTP only, and the client uses NATS.",
		"Give the client the fleet's `http://` address."),
	row(NATSOnly, "client exit=3", "The operation is available over NATS only, and the client uses HTTP.",
		"Give the client the fleet's `nats://` address."),
	row(BadConfiguration, "client",
		"Settings that a Python program gave contradict each other, or name a path that is not a directory.",
		"Correct the settings that the message names."),
	row(BadText, "client", "A Python string contains a lone surrogate, which UTF-8 cannot encode.",
		"Correct the text, or pass bytes to `write_file`."),
	row(BadTool, "client", "A Python function cannot be a tool, because a parameter cannot be passed by name.",
		"Use parameters that can be passed by name."),
	row(FleetSetting, "client", "A Python program gave settings for a fleet that already runs.",
		"Set them in the fleet's `config.yaml`, or omit `url`, `token` and `fleet` to start a fleet."),
	row(NoFleet, "client", "The Python client found no fleet (no URL, and no `fleet.json`), or could not start one.",
		"Start one with `codefleet up`, or pass `url` and `token`."),
	row(NoPackage, "client", "A Python program gave settings of a fleet, but only `codefleet.py` is installed.",
		"Install the package: `pip install ./clients/python`."),
	row(NoProgram, "client", "The Python client cannot start a fleet, because it finds no binary `codefleet`.",
		"Put the binary on `PATH`, or set `CODEFLEET_BIN`."),
	row(Unreachable, "client", "The Python client could not reach the fleet.",
		"Check the address; `codefleet doctor` checks the host."),
	row(UnexpectedResponse, "client exit=3", "The server at the address responded, but it is not a fleet.",
		"Check the address, and any proxy in between."),
}
