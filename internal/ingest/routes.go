package ingest

import (
	"net/http"
	"slices"

	"github.com/codefleet/codefleet/internal/errcode"
)

// newMux returns a mux of the routes. Metrics and MCP are served only if the options have a handler for them.
func (s *Server) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		if r.tag() == "metrics" && s.o.Telemetry.Metrics == nil || r.tag() == "mcp" && s.o.MCP == nil ||
			r.tag() == "page" && s.o.Page == nil {
			continue
		}
		mux.Handle(r.pattern, s.endpoint(r))
	}
	return mux
}

// routes returns the table of all routes.
func (s *Server) routes() []route {
	return slices.Concat(s.taskRoutes(), s.eventRoutes(), s.scheduleRoutes(), s.triggerRoutes(), s.webhookRoutes(),
		s.workflowRoutes(),
		s.approvalRoutes(), s.formRoutes(),
		s.sessionRoutes(), s.toolRoutes(), s.skillRoutes(),
		s.workspaceRoutes(), s.fileRoutes(), s.stateRoutes(), s.fleetRoutes(), s.metaRoutes(), s.mcpRoutes(),
		s.pageRoutes())
}

func (s *Server) taskRoutes() []route {
	return []route{
		row("POST /v1/tasks", ScopeSubmit, s.postTask, "submitTask", "Submit a task as JSON").
			note("With an idempotency key that was used before, the response is the record of that task. "+
				"The status is 200 if the task has ended, else 202.").
			takes("wait", "until", "known", "Idempotency-Key").
			body("application/json", "Submission").
			returns(200, "Record").returns(202, "Record").
			fails(submitErrors...).fails(queueErrors...).fails(errcode.BadParameter),
		row("GET /v1/tasks", ScopeRead, s.withQueueTime(s.getTasks), "listTasks", "List tasks, the latest first").
			takes("status", "limit").
			returns(200, "[]Record").
			fails(queueErrors...).fails(errcode.BadParameter),
		row("GET /v1/tasks/{id}", ScopeRead, s.getTask, "getTask", "Read the record of a task, or wait for its end").
			takes("wait", "until", "known").
			returns(200, "Record").
			fails(queueErrors...).fails(errcode.BadParameter, errcode.UnknownTask),
		row("DELETE /v1/tasks/{id}", ScopeSubmit, s.withQueueTime(s.deleteTask), "cancelTask", "Cancel a task").
			note("A queued task ends at once, a running one soon; a task that has ended does not change.").
			returns(200, "Record").returns(202, "Record").
			fails(queueErrors...).fails(errcode.UnknownTask),
		row("GET /v1/tasks/{id}/why", ScopeRead, s.withQueueTime(s.getWhy),
			"whyTask", "Read what a task waits for").
			returns(200, "Why").
			fails(queueErrors...).fails(errcode.UnknownTask),
		row("GET /v1/tasks/{id}/events", ScopeRead, s.getTaskEvents,
			"watchTask", "Stream progress and output of a task").
			note("Server-sent events: `progress` with a Progress and its sequence number as id, finally "+
				"`record` with the Record and the id `end`. Resume with Last-Event-ID. With the id `end` "+
				"the response is 204.").
			takes("Last-Event-ID").
			returnsMedia(200, "text/event-stream", "Text").returnsNothing(204).
			fails(queueErrors...).fails(errcode.BadParameter, errcode.UnknownTask),
		row("GET /v1/tasks/{id}/artifacts/{path...}", ScopeRead, s.getArtifact,
			"getArtifact", "Download an artifact").
			returnsMedia(200, "*/*", "Bytes").
			fails(queueErrors...).fails(errcode.UnknownTask, errcode.UnknownArtifact),
		row("GET /v1/dead", ScopeRead, s.withQueueTime(s.getDead),
			"listDead", "List the dead-letter queue, the latest first").
			takes("cause", "limit").
			returns(200, "[]DeadTask").
			fails(queueErrors...).fails(errcode.BadParameter),
		row("POST /v1/tasks/{id}/redrive", ScopeSubmit, s.withQueueTime(s.postRedrive),
			"redriveTask", "Queue a dead-lettered task again").
			note("The task keeps its id and its program; its attempts are counted from the beginning. Its dead letter "+
				"is removed.").
			returns(200, "Record").
			fails(queueErrors...).fails(errcode.UnknownTask, errcode.NotRedrivable),
		row("POST /v1/dead/redrive", ScopeSubmit, s.withQueueTime(s.postRedriveAll),
			"redriveDead", "Queue dead-lettered tasks again, the oldest first").
			note("A task that cannot be redriven has an error in the response and stays in the dead-letter queue. "+
				"Repeat the request with `seq` set to `next` until `next` is absent.").
			takes("seq", "cause", "limit").
			returns(200, "Redriven").
			fails(queueErrors...).fails(errcode.BadParameter),
		row("GET /v1/dead/{id}", ScopeRead, s.withQueueTime(s.getDeadLetter),
			"getDeadLetter", "Read the dead letter of a task, with its record").
			returns(200, "DeadLetter").
			fails(queueErrors...).fails(errcode.UnknownTask),
		row("GET /v1/tasks/{id}/submission", ScopeRead, s.withQueueTime(s.getSubmission),
			"getSubmission", "Read what submitted a task, to submit it again").
			note("Without its times, reply subject and key, so that it can be sent to POST /v1/tasks after a change.").
			returns(200, "Submission").
			fails(queueErrors...).fails(errcode.UnknownTask, errcode.NotRetryable),
		row("POST /v1/tasks/{id}/retry", ScopeSubmit, s.withQueueTime(s.postRetry),
			"retryTask", "Run a task again that ended without success").
			note("A dead-lettered task is redriven, under its own id. Any other has a final result that others may "+
				"have acted on: it is submitted again as a new task, whose record is the response; a repeated request "+
				"returns the same new task.").
			returns(200, "Record").returns(202, "Record").
			fails(submitErrors...).fails(queueErrors...).
			fails(errcode.UnknownTask, errcode.NotRedrivable, errcode.NotRetryable),
		row("GET /v1/audit", ScopeRead, s.withQueueTime(s.getAudit),
			"listAudit", "List audit records of tool calls, the latest first").
			takes("task", "limit").
			returns(200, "[]AuditRecord").
			fails(queueErrors...).fails(errcode.BadParameter),
	}
}

func (s *Server) eventRoutes() []route {
	return []route{
		row("POST /v1/events", ScopeSubmit, s.postEvents,
			"submitEvents", "Submit tasks, and events for triggers, as CloudEvents").
			note("Binary, structured or batch mode of the CloudEvents HTTP binding. The response to a batch has "+
				"one item for each event, in order: 202 if all were accepted, else 207. Events of the type "+
				"`codefleet.task.v1` are tasks. Events whose type does not begin with `codefleet.` are for triggers.").
			takes("wait", "until", "known").
			body("application/json", "Task").
			body("application/cloudevents+json", "CloudEvent|AnyEvent").
			body("application/cloudevents-batch+json", "CloudEventBatch").
			returns(200, "Record").returns(202, "Record|BatchItems|AcceptedEvent").returns(207, "BatchItems").
			fails(submitErrors...).fails(queueErrors...).fails(errcode.BadParameter),
		row("OPTIONS /v1/events", ScopeSubmit, s.optionsEvents, "allowEvents", "Web hook handshake of CloudEvents").
			takes("WebHook-Request-Origin").
			returnsNothing(200),
	}
}

func (s *Server) scheduleRoutes() []route {
	named := func(method, path, scope string, h handler, id, summary string) route {
		return row(method+" /v1/schedules/{name}"+path, scope, s.withQueueTime(h), id, summary).
			fails(queueErrors...).fails(errcode.BadName, errcode.UnknownAutomation)
	}
	return []route{
		row("GET /v1/schedules", ScopeRead, s.withQueueTime(s.getSchedules), "listSchedules", "List schedules").
			returns(200, "[]Schedule").
			fails(queueErrors...),
		row("POST /v1/schedules", ScopeSubmit, s.withQueueTime(s.postSchedule), "addSchedule", "Add a schedule").
			note("Its task is submitted at the times of a cron expression: see docs/automation.md. Adding the same "+
				"schedule again changes nothing.").
			body("application/json", "ScheduleSpec").
			returns(200, "Schedule").
			fails(submitErrors...).fails(queueErrors...).fails(errcode.AutomationExists, errcode.AutomationLimit),
		named("GET", "", ScopeRead, s.getSchedule, "getSchedule", "Read a schedule").
			returns(200, "Schedule"),
		named("DELETE", "", ScopeSubmit, s.deleteSchedule, "deleteSchedule", "Remove a schedule").
			returnsNothing(204),
		named("POST", "/pause", ScopeSubmit, s.pauseSchedule(true), "pauseSchedule", "Pause a schedule").
			note("Firings during the pause do not take place later.").
			returns(200, "Schedule").fails(errcode.Busy),
		named("POST", "/resume", ScopeSubmit, s.pauseSchedule(false), "resumeSchedule", "Resume a schedule").
			returns(200, "Schedule").fails(errcode.Busy),
		named("POST", "/run", ScopeSubmit, s.runSchedule, "runSchedule", "Submit a schedule's task now").
			returns(200, "Record").returns(202, "Record").
			fails(submitErrors...),
	}
}

func (s *Server) triggerRoutes() []route {
	named := func(method, path, scope string, h handler, id, summary string) route {
		return row(method+" /v1/triggers/{name}"+path, scope, s.withQueueTime(h), id, summary).
			fails(queueErrors...).fails(errcode.BadName, errcode.UnknownAutomation)
	}
	return []route{
		row("GET /v1/triggers", ScopeRead, s.withQueueTime(s.getTriggers), "listTriggers", "List triggers").
			returns(200, "[]Trigger").
			fails(queueErrors...),
		row("POST /v1/triggers", ScopeSubmit, s.withQueueTime(s.postTrigger), "addTrigger", "Add a trigger").
			note("Its task is submitted for each event that it matches: see docs/automation.md. Adding the same "+
				"trigger again changes nothing.").
			body("application/json", "TriggerSpec").
			returns(200, "Trigger").
			fails(submitErrors...).fails(queueErrors...).fails(errcode.AutomationExists, errcode.AutomationLimit),
		named("GET", "", ScopeRead, s.getTrigger, "getTrigger", "Read a trigger").
			returns(200, "Trigger"),
		named("DELETE", "", ScopeSubmit, s.deleteTrigger, "deleteTrigger", "Remove a trigger").
			returnsNothing(204),
		named("POST", "/test", ScopeSubmit, s.testTrigger, "testTrigger", "Show what a trigger does with an event").
			note("Nothing is submitted.").
			body("application/cloudevents+json", "AnyEvent").
			returns(200, "TriggerTest").
			fails(errcode.BadEvent),
	}
}

func (s *Server) webhookRoutes() []route {
	return []route{
		row("GET /v1/webhooks", ScopeRead, s.withQueueTime(s.getWebhooks), "listWebhooks", "List webhooks").
			returns(200, "[]Webhook").
			fails(queueErrors...),
		row("POST /v1/webhooks", ScopeSubmit, s.withQueueTime(s.postWebhook), "addWebhook", "Add a webhook").
			note("It sends results or events to a URL, signed: see docs/automation.md. Only this response has the "+
				"secret of the signatures.").
			body("application/json", "WebhookSpec").
			returns(200, "Webhook").
			fails(queueErrors...).fails(errcode.BadName, errcode.AutomationExists, errcode.AutomationLimit),
		row("DELETE /v1/webhooks/{name}", ScopeSubmit, s.withQueueTime(s.deleteWebhook),
			"deleteWebhook", "Remove a webhook").
			returnsNothing(204).
			fails(queueErrors...).fails(errcode.BadName, errcode.UnknownAutomation),
	}
}

func (s *Server) workflowRoutes() []route {
	named := func(method, path, scope string, h handler, id, summary string) route {
		return row(method+" /v1/workflows/runs/{run}"+path, scope, s.withQueueTime(h), id, summary).
			returns(200, "WorkflowRun").
			fails(queueErrors...).fails(errcode.UnknownRun)
	}
	return []route{
		row("POST /v1/workflows/validate", ScopeSubmit, s.postWorkflowCheck, "validateWorkflow", "Check a workflow").
			note("Nothing is run. The error lists everything that is wrong: see docs/workflows.md.").
			body("application/json", "WorkflowRequest").
			returns(200, "WorkflowCheck").
			fails(errcode.BadJSON, errcode.BadWorkflow),
		row("POST /v1/workflows/runs", ScopeSubmit, s.withQueueTime(s.postRun), "startRun", "Run a workflow").
			note("With an idempotency key that was used before, the response is that run.").
			takes("Idempotency-Key").
			body("application/json", "WorkflowRequest").
			returns(200, "WorkflowRun").
			fails(submitErrors...).fails(queueErrors...).fails(errcode.BadWorkflow),
		row("GET /v1/workflows/runs", ScopeRead, s.withQueueTime(s.getRuns),
			"listRuns", "List workflow runs, the one that changed last first").
			takes("limit").
			returns(200, "[]WorkflowRun").
			fails(queueErrors...).fails(errcode.BadParameter),
		named("GET", "", ScopeRead, s.getRun, "getRun", "Read a workflow run, with the results of its steps"),
		named("POST", "/cancel", ScopeSubmit, s.cancelRun, "cancelRun", "Cancel a workflow run").
			note("What runs is cancelled, then the steps of `finally` run. A second request cancels these, too."),
		named("POST", "/answer", ScopeSubmit, s.answerRun, "answerRun", "Answer a step that asks").
			note("The first answer counts.").
			body("application/json", "WorkflowAnswer").
			fails(errcode.BadJSON, errcode.BadAnswer, errcode.NotWaiting),
		named("POST", "/rerun", ScopeSubmit, s.rerun, "rerunRun", "Run a workflow again from a step").
			note("A new run keeps the results of the steps before. Its workspace has the files that the step began "+
				"with.").
			takes("Idempotency-Key").
			body("application/json", "WorkflowRerun").
			fails(submitErrors...).
			fails(errcode.BadWorkflow, errcode.RunActive, errcode.UnknownStep, errcode.UnknownVersion,
				errcode.NoWorkspaces),
	}
}

func (s *Server) approvalRoutes() []route {
	return []route{
		row("GET /v1/approvals", ScopeRead, s.withQueueTime(s.getApprovals),
			"listApprovals", "List tool calls that wait for approval").
			returns(200, "[]PendingApproval").
			fails(queueErrors...),
		row("POST /v1/tasks/{id}/approvals", ScopeApprove, s.postApproval,
			"answerApproval", "Approve or deny tool calls of a task").
			note("The first answer counts. The same answer may be sent again.").
			body("application/json", "Decision").
			returns(200, "Record").
			fails(queueErrors...).
			fails(errcode.UnknownTask, errcode.UnknownApproval, errcode.AlreadyAnswered, errcode.ApprovalOver),
	}
}

func (s *Server) sessionRoutes() []route {
	named := func(method, path string, scope string, h handler, id, summary string) route {
		return row(method+" /v1/sessions/{session}"+path, scope, s.withQueueTime(h), id, summary).
			returns(200, "Session").
			fails(queueErrors...).fails(errcode.BadName, errcode.UnknownSession)
	}
	return []route{
		row("GET /v1/sessions", ScopeRead, s.withQueueTime(s.getSessions),
			"listSessions", "List sessions, the one with the latest task first").
			takes("limit").
			returns(200, "[]SessionSummary").
			fails(queueErrors...).fails(errcode.BadParameter),
		named("GET", "", ScopeRead, s.getSession, "getSession", "Read the log of a session").
			note("`limit` is the number of the newest tasks.").
			takes("limit").fails(errcode.BadParameter),
		named("POST", "/checkpoints", ScopeSubmit, s.postCheckpoint, "saveCheckpoint",
			"Set the checkpoint of a session").
			note("The body is an object, such as `{\"step\": 3, \"context\": \"…\"}`.").
			body("application/json", "Checkpoint").
			fails(bodyErrors...).fails(errcode.BadData, errcode.BadMediaType, errcode.TooLarge),
		named("POST", "/resume", ScopeSubmit, s.resumeSession, "resumeSession",
			"Read the log of a session to go on with it").
			note("With `checkpoint`, the id of an earlier checkpoint, that one becomes the newest first.").
			body("application/json", "Resumption").
			fails(bodyErrors...).
			fails(errcode.BadJSON, errcode.BadMediaType, errcode.TooLarge, errcode.UnknownCheckpoint),
	}
}

func (s *Server) toolRoutes() []route {
	return []route{
		row("GET /v1/tools", ScopeRead, s.getTools, "listTools", "List the catalogue of tools").
			takes("detail", "server", "exposed").
			returns(200, "ToolList").
			fails(toolErrors...).fails(errcode.BadParameter, errcode.UnknownTool),
		row("GET /v1/tools/search", ScopeRead, s.searchTools,
			"searchTools", "Find the tools for one or several queries").
			takes("q", "detail", "limit", "explain").
			returns(200, "ToolSearch").
			fails(toolErrors...).fails(errcode.BadParameter),
		row("GET /v1/tools/{server}/{tool}", ScopeRead, s.getTool, "getTool", "Read the definition of a tool").
			returns(200, "Tool").
			fails(toolErrors...).fails(errcode.UnknownTool),
		row("POST /v1/registrations", ScopeTools, s.postRegistration,
			"registerTools", "Serve functions of this process as tools").
			note("The tools exist while the response is open. Server-sent events: `registered` with the id of the "+
				"registration, and `call` for each call, with its id, tool and args. Answer each call, as in "+
				"`{\"call\": ID, \"value\": …}` or `{\"call\": ID, \"error\": TEXT}`.").
			body("application/json", "Registration").
			returnsMedia(200, "text/event-stream", "Text").
			fails(toolErrors...).fails(errcode.ToolTaken, errcode.TooManyRegistrations),
		row("POST /v1/registrations/{id}/answers", ScopeTools, s.postToolAnswer,
			"answerToolCall", "Answer a call of a registered tool").
			body("application/json", "ToolAnswer").
			returnsNothing(204).
			fails(queueErrors...).fails(errcode.UnknownRegistration, errcode.UnknownCall),
	}
}

// workspaceRow returns a route about one workspace. path is the rest of its path.
func (s *Server) workspaceRow(method, path, scope string, h workspaceHandler, id, summary string) route {
	return row(method+" /v1/workspaces/{workspace}"+path, scope, s.workspace(h), id, summary).
		fails(workspaceErrors...)
}

func (s *Server) workspaceRoutes() []route {
	return []route{
		row("GET /v1/workspaces", ScopeRead, s.store(s.getWorkspaces), "listWorkspaces", "List workspaces").
			returns(200, "[]Workspace").
			fails(storeErrors...),
		s.workspaceRow("GET", "", ScopeRead, s.getWorkspace,
			"getWorkspace", "Read generation and size of a workspace").
			returns(200, "Workspace"),
		s.workspaceRow("DELETE", "", ScopeSubmit, s.deleteWorkspace,
			"deleteWorkspace", "Delete a workspace with its history").
			returnsNothing(204),
		s.workspaceRow("GET", "/log", ScopeRead, s.getLog, "listCommits", "List commits, the newest first").
			takes("limit").
			returns(200, "[]Commit").
			fails(errcode.BadParameter),
		s.workspaceRow("GET", "/diff", ScopeRead, s.getDiff,
			"diffWorkspace", "List the paths that differ between two versions").
			takes("from", "to").
			returns(200, "[]PathChange").
			fails(errcode.BadParameter),
		s.workspaceRow("POST", "/restore", ScopeSubmit, s.postRestore,
			"restoreWorkspace", "Commit an earlier version again").
			body("application/json", "Change").
			returns(200, "Commit").
			fails(commitErrors...).fails(errcode.BadParameter),
		s.workspaceRow("POST", "/fork", ScopeSubmit, s.postFork,
			"forkWorkspace", "Start a workspace from a version of this one").
			body("application/json", "Change").
			returns(200, "Commit").
			fails(commitErrors...).fails(errcode.BadParameter, errcode.WorkspaceExists),
		s.workspaceRow("POST", "/check", ScopeRead, s.postCheck,
			"checkWorkspace", "Verify that all versions can be read").
			body("application/json", "CheckOptions").
			returns(200, "CheckReport").
			fails(errcode.BadParameter),
		s.workspaceRow("POST", "/repair", ScopeSubmit, s.postRepair,
			"repairWorkspace", "Rebuild the newest version from what is intact").
			body("application/json", "RepairOptions").
			returns(200, "RepairReport").
			fails(commitErrors...),
		s.workspaceRow("POST", "/mirror", ScopeSubmit, s.postMirror,
			"mirrorWorkspace", "Bring the mirror to the newest version").
			returns(200, "MirrorReport").
			fails(errcode.NoMirror),
		s.workspaceRow("GET", "/pins", ScopeRead, s.getPins, "listPins", "List pins, the oldest first").
			returns(200, "[]Pin"),
		s.workspaceRow("PUT", "/pins/{pin}", ScopeSubmit, s.putPin, "putPin", "Pin a version").
			body("application/json", "Change").
			returns(200, "Pin").
			fails(errcode.BadParameter),
		s.workspaceRow("DELETE", "/pins/{pin}", ScopeSubmit, s.deletePin, "deletePin", "Remove a pin").
			returnsNothing(204).
			fails(bodyErrors...).fails(errcode.BadParameter),
	}
}

func (s *Server) fileRoutes() []route {
	return []route{
		s.workspaceRow("GET", "/files", ScopeRead, s.getFiles, "listFiles", "List the paths of a version").
			takes("generation", "dir", "If-None-Match").
			returns(200, "[]File").returnsNothing(304).
			fails(errcode.BadParameter),
		s.workspaceRow("POST", "/files", ScopeSubmit, s.postFiles, "commitFiles", "Commit many changes at once").
			note("Each part with a file name is a file: the part's name is its path, Codefleet-Mode and "+
				"Codefleet-Time its attributes. The part `edits` is a JSON array of other changes: "+
				"`{path, kind: dir|link, mode, target}`, or `{path}` to remove it. With `base`, commits since "+
				"that generation are merged; without, the changes replace what is there.").
			takes("base", "message").
			body("multipart/form-data", "Form").
			returns(200, "Commit").
			fails(commitErrors...).fails(errcode.BadParameter, errcode.BadForm, errcode.Busy),
		s.workspaceRow("GET", "/files/{path...}", ScopeRead, s.getFile, "getFile", "Download a file").
			note("Range requests with up to 8 ranges are served.").
			takes("generation", "Range", "If-None-Match").
			returnsMedia(200, "*/*", "Bytes").
			returnsMedia(206, "*/*", "Bytes").returnsNothing(304).returnsNothing(416).
			fails(errcode.BadParameter, errcode.UnknownFile),
		s.workspaceRow("PUT", "/files/{path...}", ScopeSubmit, s.putFile, "putFile", "Write a file and commit it").
			takes("message", "If-Match", "If-None-Match", modeHeader, timeHeader).
			body("*/*", "Bytes").
			returns(200, "Commit").
			fails(commitErrors...).fails(errcode.BadParameter, errcode.PreconditionFailed, errcode.Busy),
		s.workspaceRow("DELETE", "/files/{path...}", ScopeSubmit, s.deleteFile,
			"deleteFile", "Remove a file, or a directory with its content").
			takes("If-Match").
			returns(200, "Commit").
			fails(commitErrors...).fails(errcode.BadParameter, errcode.PreconditionFailed, errcode.UnknownFile),
		s.workspaceRow("GET", "/archive", ScopeRead, s.getArchive,
			"getArchive", "Download a version as zip or tar").
			takes("generation", "format", "dir").
			returnsMedia(200, "application/zip", "Bytes").returnsMedia(200, "application/x-tar", "Bytes").
			fails(errcode.BadParameter),
		s.workspaceRow("POST", "/archive", ScopeRead, s.postArchive,
			"getArchiveOf", "Download some files of a version as tar").
			body("application/json", "ArchiveOptions").
			returnsMedia(200, "application/x-tar", "Bytes").
			fails(errcode.BadParameter),
	}
}

func (s *Server) stateRoutes() (table []route) {
	for _, v := range []struct{ path, id, document string }{
		{"/v1/state", "DefaultState", "the default state document"},
		{"/v1/state/{file...}", "State", "a state document"},
	} {
		table = append(table,
			row("GET "+v.path, ScopeRead, s.store(s.getState), "get"+v.id, "Read "+v.document).
				note("A YAML document is returned as YAML unless Accept contains json.").
				takes("workspace", "If-None-Match").
				returnsMedia(200, "application/json", "Object").
				returnsMedia(200, "application/yaml", "Text").returnsNothing(304).
				fails(workspaceErrors...).
				fails(errcode.BadStateFile, errcode.UnknownState, errcode.StateDisabled, errcode.TooLarge).
				failsWith(http.StatusConflict, errcode.BadState), // the stored document is damaged
			row("PUT "+v.path, ScopeSubmit, s.store(s.putState), "put"+v.id, "Replace "+v.document).
				takes("workspace", "If-Match", "If-None-Match").
				body("application/json", "Object").body("application/yaml", "Text").
				returns(200, "SavedState").
				fails(workspaceErrors...).fails(commitErrors...).
				fails(errcode.BadParameter, errcode.BadStateFile, errcode.BadState, errcode.StateConflict,
					errcode.StateDisabled))
	}
	return table
}

func (s *Server) fleetRoutes() []route {
	return []route{
		row("GET /v1/fleet", ScopeOperator, s.withQueueTime(s.getFleet),
			"getFleet", "List workers and the backlog of each task pool").
			returns(200, "Fleet").
			fails(queueErrors...),
		row("GET /v1/fleet/backlog", ScopeOperator, s.withQueueTime(s.getDemand),
			"getBacklog", "Read the backlog of a task pool and the number of slots that it needs").
			note("For autoscalers: `slots`, divided by the slots of a worker, is the number of workers that do the "+
				"queued work in the time `within`, in addition to the running tasks.").
			takes("pool", "within").
			returns(200, "Demand").
			fails(queueErrors...).fails(errcode.BadParameter),
		row("GET /v1/pauses", ScopeOperator, s.withQueueTime(s.getPauses),
			"listPauses", "List what is paused").
			returns(200, "[]Pause").
			fails(queueErrors...),
		row("POST /v1/pause", ScopeOperator, s.withQueueTime(s.postPause),
			"pause", "Pause a tenant, a task pool or the fleet").
			note("The target is fleet, pool/NAME or tenant/NAME. No further tasks of it start; running tasks "+
				"continue, and tasks are still accepted. Owners of waiting tasks can read the reason.").
			body("application/json", "PauseOptions").
			returns(200, "Pause").
			fails(queueErrors...).fails(errcode.BadName, errcode.UnknownTenant),
		row("POST /v1/resume", ScopeOperator, s.withQueueTime(s.postResume),
			"resume", "End a pause").
			body("application/json", "PauseOptions").
			returns(200, "Resumed").
			fails(queueErrors...).fails(errcode.BadName),
		row("GET /v1/usage", anyScope, s.withQueueTime(s.getUsage),
			"listUsage", "Read what tasks used, by tenant and day").
			note("Of the caller's tenant, or with `all=true` and the scope operator, of all tenants. Workers add up "+
				"what they count for up to 5 seconds.").
			takes("since", "before", "all").
			returns(200, "[]TenantUsage").
			fails(queueErrors...).fails(errcode.BadParameter, errcode.Forbidden),
		row("GET /v1/limits", ScopeOperator, s.withQueueTime(s.getAllLimits),
			"listLimits", "List the limits of tenants that were set at run time").
			returns(200, "[]TenantLimitsInfo").
			fails(queueErrors...),
		row("GET /v1/limits/{tenant}", ScopeOperator, s.withQueueTime(s.getLimits),
			"getLimits", "Read the limits of a tenant").
			returns(200, "TenantLimitsInfo").
			fails(queueErrors...).fails(errcode.BadName, errcode.UnknownTenant),
		row("PUT /v1/limits/{tenant}", ScopeOperator, s.withQueueTime(s.putLimits),
			"putLimits", "Replace the limits of a tenant that were set at run time").
			note("They replace those of the settings, without a restart. An empty object restores the settings.").
			body("application/json", "TenantLimits").
			returns(200, "TenantLimitsInfo").
			fails(queueErrors...).fails(errcode.BadName, errcode.UnknownTenant),
		row("POST /v1/workers/{worker}/drain", ScopeOperator, s.withQueueTime(s.postDrain),
			"drainWorker", "Order a worker to drain and exit").
			note("The worker claims no more tasks, and exits once its tasks have ended; those that run longer than "+
				"its worker.drain are requeued, without an attempt being counted.").
			returns(200, "Worker").
			fails(queueErrors...).fails(errcode.UnknownWorker, errcode.NotDrainable),
		row("GET /v1/tenants", ScopeOperator, s.withQueueTime(s.getTenants),
			"listTenants", "List tenants").
			returns(200, "[]Tenant").
			fails(queueErrors...),
		row("PUT /v1/tenants/{tenant}", ScopeOperator, s.withQueueTime(s.putTenant),
			"putTenant", "Create a tenant").
			note("It may do what a tenant without settings of its own may. The response for an existing tenant is the "+
				"same.").
			returns(200, "Tenant").
			fails(queueErrors...).fails(errcode.BadName),
		row("DELETE /v1/tenants/{tenant}", ScopeOperator, s.withQueueTime(s.deleteTenant),
			"deleteTenant", "Remove a tenant that was created at run time, and its tokens").
			note("Its queued tasks are refused when their turn comes. Its workspaces and records stay.").
			returnsNothing(204).
			fails(queueErrors...).fails(errcode.BadName, errcode.UnknownTenant, errcode.InSettings),
		row("GET /v1/tokens", ScopeOperator, s.withQueueTime(s.getTokens),
			"listTokens", "List tokens, without their secrets").
			takes("tenant").
			returns(200, "[]Token").
			fails(queueErrors...),
		row("POST /v1/tokens", ScopeOperator, s.withQueueTime(s.postToken),
			"createToken", "Create a token").
			note("The response has the token itself, which is not stored and cannot be read again. It works at once, "+
				"with every part of the fleet.").
			body("application/json", "TokenOptions").
			returns(200, "NewToken").
			fails(queueErrors...).fails(errcode.BadName, errcode.UnknownTenant),
		row("DELETE /v1/tokens/{token}", ScopeOperator, s.withQueueTime(s.deleteToken),
			"revokeToken", "Revoke a token").
			note("Requests with it are refused at once, and its streams end. `token` is the id, not the token itself.").
			returnsNothing(204).
			fails(queueErrors...).fails(errcode.UnknownToken),
		row("GET /metrics", ScopeOperator, s.getMetrics, "getMetrics", "Metrics of this process, for Prometheus").
			returnsMedia(200, "text/plain", "Text"),
	}
}

// metaRoutes describe the interface, the caller and the process.
func (s *Server) metaRoutes() []route {
	return []route{
		row("GET /v1/whoami", anyScope, s.getWhoAmI, "whoAmI", "Read tenant and scopes of the token").
			returns(200, "Identity"),
		row("GET /v1/schemas/{name}", public, s.getSchema,
			"getSchema", "Read a JSON Schema of events, records or results").
			returnsMedia(200, "application/schema+json", "Object").
			fails(errcode.UnknownSchema),
		row("GET /openapi.json", public, s.getOpenAPI, "getOpenAPI", "Read this description of the interface").
			returns(200, "Object"),
		row("GET /healthz", public, s.healthz, "healthz", "Report that this process responds").
			returns(200, "Health"),
		row("GET /health", public, s.healthz, "health", "The same as /healthz").
			returns(200, "Health"),
		row(readyPattern, public, s.readyz, "readyz", "Report whether this process can serve requests").
			returns(200, "Health").
			fails(queueErrors...),
	}
}

// pageRoutes are the web page, which authenticates requests itself.
func (s *Server) pageRoutes() []route {
	return []route{
		row("GET /{$}", public, s.toPage, "root", "Go to the web page").returnsNothing(303),
		row(pagePath+"/", public, s.servePage, "page", "The web page").methods("get", "post").
			note("Its forms and links are for browsers and not a part of this interface.").
			returnsMedia(200, "text/html", "Text"),
		row("POST /v1/page/links", anyScope, s.postPageLink, "createPageLink", "Create a link to the web page").
			note("The link logs its holder in with the token of the request, once and within an hour. It is relative "+
				"to the fleet's URL.").
			returns(200, "PageLink"),
	}
}

// mcpRoutes are the paths of the MCP bridge, which authenticates requests itself.
func (s *Server) mcpRoutes() []route {
	return []route{
		row("/mcp", public, s.serveMCP, "mcp", "MCP bridge over streamable HTTP").methods("get", "post", "delete").
			note("See docs/mcp.md. Errors of the transport are text.").
			returns(200, "Object").returnsMedia(200, "text/event-stream", "Text"),
		row("/sse", public, s.serveMCP, "mcpSSE", "MCP bridge over the older SSE transport").methods("get", "post").
			returnsMedia(200, "text/event-stream", "Text"),
		row("POST /register", public, s.serveMCP, "mcpRegister", "Refuse MCP clients that try OAuth").
			note("The fleet has no OAuth. The response says how a client authenticates.").
			returns(400, "Object"),
	}
}
