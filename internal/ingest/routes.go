package ingest

import (
	"net/http"
	"slices"

	"github.com/codefleet/codefleet/internal/errcode"
)

// newMux returns a mux of the routes. Metrics, MCP and the page are served only if the options have a handler for them.
func (s *Server) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		if r.tag() == "metrics" && s.o.Telemetry.Metrics == nil || r.tag() == "mcp" && s.o.Mounted.MCP == nil ||
			r.tag() == "page" && s.o.Mounted.Page == nil {
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

// queueRow returns a route whose handler needs only the queue, and waits for it at most QueueTime.
func (s *Server) queueRow(pattern, scope string, h handler, id, summary string) route {
	return row(pattern, scope, s.withQueueTime(h), id, summary).fails(queueErrors...)
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
		s.queueRow("GET /v1/tasks", ScopeRead, s.getTasks, "listTasks", "List the tasks that changed last").
			takes("status", "limit").
			returns(200, "[]Record").
			fails(errcode.BadParameter),
		row("GET /v1/tasks/{id}", ScopeRead, s.getTask, "getTask", "Read the record of a task, or wait for its end").
			takes("wait", "until", "known").
			returns(200, "Record").
			fails(queueErrors...).fails(errcode.BadParameter, errcode.UnknownTask),
		row("DELETE /v1/tasks/{id}", ScopeSubmit, s.task(s.deleteTask), "cancelTask", "Cancel a task").
			note("A queued task ends at once, a running one soon; a task that has ended does not change.").
			returns(200, "Record").returns(202, "Record").
			fails(queueErrors...).fails(errcode.UnknownTask),
		row("GET /v1/tasks/{id}/why", ScopeRead, s.task(s.getWhy),
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
		s.queueRow("GET /v1/dead", ScopeRead, s.getDead,
			"listDead", "List the dead-letter queue, the latest first").
			takes("cause", "limit").
			returns(200, "[]DeadTask").
			fails(errcode.BadParameter),
		row("POST /v1/tasks/{id}/redrive", ScopeSubmit, s.task(s.postRedrive),
			"redriveTask", "Queue a dead-lettered task again").
			note("The task keeps its id and its program; its attempts are counted from the beginning. Its dead letter "+
				"is removed.").
			returns(200, "Record").
			fails(queueErrors...).fails(errcode.UnknownTask, errcode.NotRedrivable),
		s.queueRow("POST /v1/dead/redrive", ScopeSubmit, s.postRedriveAll,
			"redriveDead", "Queue dead-lettered tasks again, the oldest first").
			note("A task that cannot be redriven has an error in the response and stays in the dead-letter queue. "+
				"Repeat the request with `seq` set to `next` until `next` is absent.").
			takes("seq", "cause", "limit").
			returns(200, "Redriven").
			fails(errcode.BadParameter),
		row("GET /v1/dead/{id}", ScopeRead, s.task(s.getDeadLetter),
			"getDeadLetter", "Read the dead letter of a task, with its record").
			returns(200, "DeadLetter").
			fails(queueErrors...).fails(errcode.UnknownTask, errcode.NotRedrivable),
		row("GET /v1/tasks/{id}/submission", ScopeRead, s.task(s.getSubmission),
			"getSubmission", "Read the submission of a task, to submit it again").
			note("Its times, reply subject and idempotency key are left out, so that the response can be changed and "+
				"sent to POST /v1/tasks.").
			returns(200, "Submission").
			fails(queueErrors...).fails(errcode.UnknownTask, errcode.NotRetryable),
		row("POST /v1/tasks/{id}/retry", ScopeSubmit, s.task(s.postRetry),
			"retryTask", "Run a task again that ended without success").
			note("A dead-lettered task is redriven, under its own id. Any other has a final result that others may "+
				"have acted on: it is submitted again as a new task, whose record is the response; a repeated request "+
				"returns the same new task.").
			returns(200, "Record").returns(202, "Record").
			fails(submitErrors...).fails(queueErrors...).
			fails(errcode.UnknownTask, errcode.NotRedrivable, errcode.NotRetryable),
		s.queueRow("GET /v1/audit", ScopeRead, s.getAudit,
			"listAudit", "List audit records of tool calls, the latest first").
			takes("task", "limit").
			returns(200, "[]AuditRecord").
			fails(errcode.BadParameter),
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

func (s *Server) approvalRoutes() []route {
	return []route{
		s.queueRow("GET /v1/approvals", ScopeRead, s.getApprovals,
			"listApprovals", "List tool calls that wait for approval").
			returns(200, "[]PendingApproval"),
		row("POST /v1/tasks/{id}/approvals", ScopeApprove, s.postApproval,
			"answerApproval", "Approve or deny tool calls of a task").
			note("The first decision counts. The same decision may be sent again.").
			body("application/json", "Decision").
			returns(200, "Record").
			fails(queueErrors...).
			fails(errcode.UnknownTask, errcode.UnknownApproval, errcode.AlreadyAnswered, errcode.ApprovalOver),
	}
}

func (s *Server) sessionRoutes() []route {
	named := func(method, path string, scope string, h handler, id, summary string) route {
		return s.queueRow(method+" /v1/sessions/{session}"+path, scope, h, id, summary).
			returns(200, "Session").
			fails(errcode.BadName, errcode.UnknownSession)
	}
	return []route{
		s.queueRow("GET /v1/sessions", ScopeRead, s.getSessions,
			"listSessions", "List sessions, the one with the latest task first").
			takes("limit").
			returns(200, "[]SessionSummary").
			fails(errcode.BadParameter),
		named("GET", "", ScopeRead, s.getSession, "getSession", "Read the log of a session").
			note("`limit` is how many of the newest tasks the log lists.").
			takes("limit").fails(errcode.BadParameter),
		named("POST", "/checkpoints", ScopeSubmit, s.postCheckpoint, "saveCheckpoint",
			"Set the checkpoint of a session").
			note("The body is an object, such as `{\"step\": 3, \"context\": \"…\"}`.").
			body("application/json", "Checkpoint").
			fails(bodyErrors...).fails(errcode.BadData, errcode.BadMediaType, errcode.TooLarge),
		named("POST", "/resume", ScopeSubmit, s.resumeSession, "resumeSession",
			"Continue a session, and read its log").
			note("If the body has `checkpoint`, the id of an earlier checkpoint, the fleet first makes it the newest.").
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
			"registerTools", "Serve functions of the caller as tools").
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

// metaRoutes describe the interface, the caller and the process.
func (s *Server) metaRoutes() []route {
	return []route{
		row("GET /v1/whoami", anyScope, s.getWhoAmI, "whoAmI", "Read the tenant and the scopes of the token").
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

// pageRoutes are the web page, which authenticates requests itself, and the links to it.
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
