package ingest

import (
	"net/http"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
)

// route is one row of the table: what the mux serves and what the OpenAPI document describes.
type route struct {
	pattern string // as of http.ServeMux; without a method, it serves all methods
	scope   string // that the token needs, or anyScope, or public
	handle  handler
	operation
}

// newMux returns a mux of the routes. Those that need a handler of the options exist only with it.
func (s *Server) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		if r.tag() == "metrics" && s.o.Metrics == nil || r.tag() == "mcp" && s.o.MCP == nil {
			continue
		}
		mux.Handle(r.pattern, s.endpoint(r))
	}
	return mux
}

// routes returns the table.
func (s *Server) routes() []route {
	var table []route
	for _, part := range [][]route{
		s.taskRoutes(), s.eventRoutes(), s.approvalRoutes(), s.toolRoutes(),
		s.workspaceRoutes(), s.fileRoutes(), s.stateRoutes(), s.fleetRoutes(), s.metaRoutes(), s.mcpRoutes(),
	} {
		table = append(table, part...)
	}
	return table
}

func (s *Server) taskRoutes() []route {
	return []route{
		{"POST /v1/tasks", ScopeSubmit, s.postTask, op("submitTask", "Submit a task as JSON").
			note("With an idempotency key that was used before, the response is the record of that task. "+
				"The status is 200 if the task has ended, else 202.").
			takes("wait", "until", "known", "Idempotency-Key").
			body("application/json", "Submission").
			returns(200, "Record").returns(202, "Record").
			fails(bodyErrors, submitErrors, queueErrors, codeList{errcode.BadParameter})},
		{"GET /v1/tasks", ScopeRead, s.getTasks, op("listTasks", "List tasks, the latest first").
			takes("status", "limit").
			returnsList("Record").
			fails(queueErrors, codeList{errcode.BadParameter})},
		{"GET /v1/tasks/{id}", ScopeRead, s.getTask, op("getTask", "Read the record of a task, or wait for its end").
			takes("wait", "until", "known").
			returns(200, "Record").
			fails(queueErrors, codeList{errcode.BadParameter, errcode.UnknownTask})},
		{"DELETE /v1/tasks/{id}", ScopeSubmit, s.deleteTask, op("cancelTask", "Cancel a task").
			note("A queued task ends at once, a running one soon; a task that has ended does not change.").
			returns(200, "Record").returns(202, "Record").
			fails(queueErrors, codeList{errcode.UnknownTask})},
		{
			"GET /v1/tasks/{id}/events",
			ScopeRead,
			s.getTaskEvents,
			op("watchTask", "Stream progress and output of a task").
				note("Server-sent events: `progress` with a Progress and its sequence number as id, finally "+
					"`record` with the Record and the id `end`. Resume with Last-Event-ID. With the id `end` "+
					"the response is 204.").
				takes("Last-Event-ID").
				returnsMedia(200, "text/event-stream", "Text").returnsNothing(204).
				fails(queueErrors, codeList{errcode.BadParameter, errcode.UnknownTask}),
		},
		{"GET /v1/tasks/{id}/artifacts/{path...}", ScopeRead, s.getArtifact, op("getArtifact", "Download an artifact").
			returnsMedia(200, "*/*", "Bytes").
			fails(queueErrors, codeList{errcode.UnknownTask, errcode.UnknownArtifact})},
		{"GET /v1/dead", ScopeRead, s.getDead, op("listDead", "List the dead-letter queue, the latest first").
			takes("limit").
			returnsList("DeadTask").
			fails(queueErrors, codeList{errcode.BadParameter})},
		{"GET /v1/audit", ScopeRead, s.getAudit, op("listAudit", "List audit records of tool calls, the latest first").
			takes("task", "limit").
			returnsList("AuditEntry").
			fails(queueErrors, codeList{errcode.BadParameter})},
	}
}

func (s *Server) eventRoutes() []route {
	return []route{
		{"POST /v1/events", ScopeSubmit, s.postEvents, op("submitEvents", "Submit tasks as CloudEvents").
			note("Binary, structured or batch mode of the CloudEvents HTTP binding. A batch is answered with "+
				"one item for each event, in order: 202 if all were accepted, else 207.").
			takes("wait", "until", "known").
			body("application/json", "Task").
			body("application/cloudevents+json", "CloudEvent").
			body("application/cloudevents-batch+json", "CloudEventBatch").
			returns(200, "Record").returnsOneOf(202, "Record", "BatchItems").returns(207, "BatchItems").
			fails(bodyErrors, submitErrors, queueErrors, codeList{errcode.BadParameter})},
		{"OPTIONS /v1/events", ScopeSubmit, s.optionsEvents, op("allowEvents", "Web hook handshake of CloudEvents").
			takes("WebHook-Request-Origin").
			returnsNothing(200)},
	}
}

func (s *Server) approvalRoutes() []route {
	return []route{
		{"GET /v1/approvals", ScopeRead, s.getApprovals, op("listApprovals", "List tool calls that wait for approval").
			returnsList("PendingApproval").
			fails(queueErrors)},
		{
			"POST /v1/tasks/{id}/approvals",
			ScopeApprove,
			s.postApproval,
			op("answerApproval", "Approve or deny tool calls of a task").
				note("The first answer counts. The same answer may be sent again.").
				body("application/json", "Answer").
				returns(200, "Record").
				fails(bodyErrors, queueErrors, codeList{
					errcode.UnknownTask, errcode.UnknownApproval, errcode.AlreadyAnswered,
					errcode.ApprovalOver,
				}),
		},
	}
}

func (s *Server) toolRoutes() []route {
	return []route{
		{"GET /v1/tools", ScopeRead, s.getTools, op("listTools", "List the catalogue of tools").
			takes("detail", "server", "exposed").
			returns(200, "ToolList").
			fails(toolErrors, codeList{errcode.BadParameter, errcode.UnknownTool})},
		{
			"GET /v1/tools/search",
			ScopeRead,
			s.searchTools,
			op("searchTools", "Find the tools for one or several queries").
				takes("q", "detail", "limit", "explain").
				returns(200, "ToolSearch").
				fails(toolErrors, codeList{errcode.BadParameter}),
		},
		{"GET /v1/tools/{server}/{tool}", ScopeRead, s.getTool, op("getTool", "Read the definition of a tool").
			returns(200, "Tool").
			fails(toolErrors, codeList{errcode.UnknownTool})},
	}
}

const workspacePath = "/v1/workspaces/{workspace}"

func (s *Server) workspaceRoutes() []route {
	const ws = workspacePath
	return []route{
		{"GET /v1/workspaces", ScopeRead, s.store(s.getWorkspaces), op("listWorkspaces", "List workspaces").
			returnsList("Workspace").
			fails(storeErrors)},
		{"GET " + ws, ScopeRead, s.store(s.getWorkspace), op("getWorkspace", "Read generation and size of a workspace").
			returns(200, "Workspace").
			fails(workspaceErrors)},
		{
			"DELETE " + ws,
			ScopeSubmit,
			s.store(s.deleteWorkspace),
			op("deleteWorkspace", "Delete a workspace with its history").
				returnsNothing(204).
				fails(workspaceErrors),
		},
		{"GET " + ws + "/log", ScopeRead, s.store(s.getLog), op("listCommits", "List commits, the newest first").
			takes("limit").
			returnsList("Commit").
			fails(workspaceErrors, codeList{errcode.BadParameter})},
		{
			"GET " + ws + "/diff",
			ScopeRead,
			s.store(s.getDiff),
			op("diffWorkspace", "List the paths that differ between two versions").
				takes("from", "to").
				returnsList("PathChange").
				fails(workspaceErrors, codeList{errcode.BadParameter, errcode.UnknownVersion}),
		},
		{
			"POST " + ws + "/restore",
			ScopeSubmit,
			s.store(s.postRestore),
			op("restoreWorkspace", "Commit an earlier version again").
				body("application/json", "Change").
				returns(200, "Commit").
				fails(workspaceErrors, bodyErrors, commitErrors,
					codeList{errcode.BadParameter, errcode.UnknownVersion}),
		},
		{
			"POST " + ws + "/fork",
			ScopeSubmit,
			s.store(s.postFork),
			op("forkWorkspace", "Start a workspace from a version of this one").
				body("application/json", "Change").
				returns(200, "Commit").
				fails(workspaceErrors, bodyErrors, commitErrors,
					codeList{errcode.BadParameter, errcode.UnknownVersion, errcode.WorkspaceExists}),
		},
		{
			"POST " + ws + "/check",
			ScopeRead,
			s.store(s.postCheck),
			op("checkWorkspace", "Verify that all versions can be read").
				body("application/json", "CheckOptions").
				returns(200, "CheckReport").
				fails(workspaceErrors, bodyErrors, codeList{errcode.BadParameter}),
		},
		{
			"POST " + ws + "/repair",
			ScopeSubmit,
			s.store(s.postRepair),
			op("repairWorkspace", "Rebuild the newest version from what is intact").
				body("application/json", "RepairOptions").
				returns(200, "RepairReport").
				fails(workspaceErrors, bodyErrors, commitErrors),
		},
		{
			"POST " + ws + "/mirror",
			ScopeSubmit,
			s.store(s.postMirror),
			op("mirrorWorkspace", "Bring the mirror to the newest version").
				returns(200, "MirrorReport").
				fails(workspaceErrors, codeList{errcode.NoMirror}),
		},
		{"GET " + ws + "/pins", ScopeRead, s.store(s.getPins), op("listPins", "List pins, the oldest first").
			returnsList("Pin").
			fails(workspaceErrors)},
		{"PUT " + ws + "/pins/{pin}", ScopeSubmit, s.store(s.putPin), op("putPin", "Pin a version").
			body("application/json", "Change").
			returns(200, "Pin").
			fails(workspaceErrors, bodyErrors, codeList{errcode.BadParameter, errcode.UnknownVersion})},
		{"DELETE " + ws + "/pins/{pin}", ScopeSubmit, s.store(s.deletePin), op("deletePin", "Remove a pin").
			returnsNothing(204).
			fails(workspaceErrors, bodyErrors, codeList{errcode.BadParameter, errcode.UnknownVersion})},
	}
}

func (s *Server) fileRoutes() []route {
	const ws = workspacePath
	return []route{
		{"GET " + ws + "/files", ScopeRead, s.store(s.getFiles), op("listFiles", "List the paths of a version").
			takes("generation", "dir", "If-None-Match").
			returnsList("File").returnsNothing(304).
			fails(workspaceErrors, codeList{errcode.BadParameter, errcode.BadPath, errcode.UnknownVersion})},
		{
			"POST " + ws + "/files",
			ScopeSubmit,
			s.store(s.postFiles),
			op("commitFiles", "Commit many changes at once").
				note("Each part with a file name is a file: the part's name is its path, "+
					"Codefleet-Mode and Codefleet-Time its attributes. The part `edits` is a JSON array of "+
					"other changes: "+
					"`{path, kind: dir|link, mode, target}`, or `{path}` to remove it. With `base`, commits "+
					"since that "+
					"generation are merged; without, the changes replace what is there.").
				takes("base", "message").
				body("multipart/form-data", "Form").
				returns(200, "Commit").
				fails(workspaceErrors, bodyErrors, commitErrors,
					codeList{errcode.BadParameter, errcode.BadForm, errcode.Busy}),
		},
		{
			"GET " + ws + "/files/{path...}",
			ScopeRead,
			s.store(s.getFile),
			op("getFile", "Download a file").
				note("Range requests with up to 8 ranges are served.").
				takes("generation", "Range", "If-None-Match").
				returnsMedia(200, "*/*", "Bytes").
				returnsMedia(206, "*/*", "Bytes").returnsNothing(304).returnsNothing(416).
				fails(workspaceErrors,
					codeList{errcode.BadParameter, errcode.BadPath, errcode.UnknownFile, errcode.UnknownVersion}),
		},
		{
			"PUT " + ws + "/files/{path...}",
			ScopeSubmit,
			s.store(s.putFile),
			op("putFile", "Write a file and commit it").
				takes("message", "If-Match", "If-None-Match", modeHeader, timeHeader).
				body("*/*", "Bytes").
				returns(200, "Commit").
				fails(workspaceErrors, bodyErrors, commitErrors,
					codeList{errcode.BadParameter, errcode.PreconditionFailed, errcode.Busy}),
		},
		{
			"DELETE " + ws + "/files/{path...}",
			ScopeSubmit,
			s.store(s.deleteFile),
			op("deleteFile", "Remove a file, or a directory with its content").
				takes("If-Match").
				returns(200, "Commit").
				fails(workspaceErrors, commitErrors,
					codeList{errcode.BadParameter, errcode.PreconditionFailed, errcode.UnknownFile}),
		},
		{
			"GET " + ws + "/archive",
			ScopeRead,
			s.store(s.getArchive),
			op("getArchive", "Download a version as zip or tar").
				takes("generation", "format", "dir").
				returnsMedia(200, "application/zip", "Bytes").returnsMedia(200, "application/x-tar", "Bytes").
				fails(workspaceErrors, codeList{errcode.BadParameter, errcode.UnknownVersion}),
		},
		{
			"POST " + ws + "/archive",
			ScopeRead,
			s.store(s.postArchive),
			op("getArchiveOf", "Download some files of a version as tar").
				body("application/json", "ArchiveOptions").
				returnsMedia(200, "application/x-tar", "Bytes").
				fails(workspaceErrors, bodyErrors, codeList{errcode.BadParameter, errcode.UnknownVersion}),
		},
	}
}

func (s *Server) stateRoutes() []route {
	get := op("getState", "Read a state document").
		note("A YAML document is returned as YAML unless Accept contains json.").
		takes("workspace", "If-None-Match").
		returnsMedia(200, "application/json", "Object").
		returnsMedia(200, "application/yaml", "Text").returnsNothing(304).
		fails(workspaceErrors, codeList{errcode.BadStateFile, errcode.UnknownState, errcode.TooLarge}).
		failsWith(http.StatusConflict, errcode.BadState) // the stored document is damaged
	put := op("putState", "Replace a state document").
		takes("workspace", "If-Match", "If-None-Match").
		body("application/json", "Object").body("application/yaml", "Text").
		returns(200, "SavedState").
		fails(workspaceErrors, bodyErrors, commitErrors,
			codeList{errcode.BadParameter, errcode.BadStateFile, errcode.BadState, errcode.PreconditionFailed})
	return []route{
		{
			"GET /v1/state", ScopeRead, s.store(s.getState),
			get.named("getDefaultState", "Read the default state document"),
		},
		{
			"PUT /v1/state", ScopeSubmit, s.store(s.putState),
			put.named("putDefaultState", "Replace the default state document"),
		},
		{"GET /v1/state/{file...}", ScopeRead, s.store(s.getState), get},
		{"PUT /v1/state/{file...}", ScopeSubmit, s.store(s.putState), put},
	}
}

func (s *Server) fleetRoutes() []route {
	return []route{
		{"GET /v1/fleet", ScopeOperator, s.getFleet, op("getFleet", "List workers and the backlog of each pool").
			returns(200, "Fleet").
			fails(queueErrors)},
		{"GET /metrics", ScopeOperator, s.getMetrics, op("getMetrics", "Metrics of this process, for Prometheus").
			returnsMedia(200, "text/plain", "Text")},
	}
}

// metaRoutes describe the interface and the process.
func (s *Server) metaRoutes() []route {
	return []route{
		{"GET /v1/whoami", anyScope, s.getWhoAmI, op("whoAmI", "Read tenant and scopes of the token").
			returns(200, "Identity")},
		{
			"GET /v1/schemas/{name}",
			public,
			s.getSchema,
			op("getSchema", "Read a JSON Schema of events, records or results").
				returnsMedia(200, "application/schema+json", "Object").
				fails(codeList{errcode.UnknownSchema}),
		},
		{"GET /openapi.json", public, s.getOpenAPI, op("getOpenAPI", "Read this description of the interface").
			returns(200, "Object")},
		{"GET /healthz", public, s.healthz, op("healthz", "Whether this process responds").
			returns(200, "Health")},
		{"GET /readyz", public, s.readyz, op("readyz", "Whether the queue responds and the process does not drain").
			returns(200, "Health").
			fails(queueErrors)},
	}
}

// mcpRoutes are the paths of the MCP bridge, which does its own authentication.
func (s *Server) mcpRoutes() []route {
	metadata := op("mcpMetadata", "Metadata of the protected resource (RFC 9728)").methods("get").returns(200, "Object")
	return []route{
		{"/mcp", public, s.serveMCP, op("mcp", "MCP bridge over streamable HTTP").methods("get", "post", "delete").
			note("See docs/mcp.md. Errors of the transport are text.").
			returnsMedia(200, "application/json", "Object").returnsMedia(200, "text/event-stream", "Text")},
		{"/sse", public, s.serveMCP, op("mcpSSE", "MCP bridge over the older SSE transport").methods("get", "post").
			returnsMedia(200, "text/event-stream", "Text")},
		{"/.well-known/oauth-protected-resource", public, s.serveMCP, metadata},
		{
			"/.well-known/oauth-protected-resource/mcp", public, s.serveMCP,
			metadata.named("mcpMetadataOfPath", metadata.summary),
		},
	}
}

// codeList is error codes that a route may respond with.
type codeList []string

// Error codes that routes have in common. Those of every route are in openapi.go.
var (
	bodyErrors = codeList{
		errcode.BadBody, errcode.BodyTimeout, errcode.TooLarge, errcode.BadMediaType, errcode.BadJSON,
		errcode.BadData,
	}
	queueErrors  = codeList{errcode.Unavailable, errcode.Stopping}
	submitErrors = codeList{
		errcode.BadEvent, errcode.BadName, errcode.BadReplyTo, errcode.Expired, errcode.TenantMismatch,
		errcode.UnknownTenant, errcode.NotAllowed, errcode.OtherData, errcode.BacklogFull,
	}
	toolErrors  = codeList{errcode.NoTools, errcode.Unavailable, errcode.Stopping}
	storeErrors = codeList{
		errcode.NoWorkspaces, errcode.Unavailable, errcode.Stopping, errcode.Corrupt, errcode.NoKey,
	}
	workspaceErrors = append(
		codeList{errcode.BadName, errcode.BadPath, errcode.UnknownVersion, errcode.WorkspaceDeleted},
		storeErrors...)
	commitErrors = codeList{errcode.Conflict, errcode.QuotaExceeded}
)

// tag returns the group of the route: the part of the path that says what it is about.
func (r route) tag() string {
	_, path, _ := strings.Cut(r.pattern, "/")
	parts := strings.Split(path, "/")
	switch {
	case parts[0] == "mcp", parts[0] == "sse", parts[0] == ".well-known":
		return "mcp"
	case parts[0] == "v1" && strings.Contains(path, "/approvals"):
		return "approvals"
	case parts[0] == "v1":
		return parts[1]
	}
	return parts[0]
}
