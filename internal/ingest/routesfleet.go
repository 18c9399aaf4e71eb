package ingest

import "github.com/codefleet/codefleet/internal/errcode"

func (s *Server) fleetRoutes() []route {
	return []route{
		s.queueRow("GET /v1/fleet", ScopeOperator, s.getFleet,
			"getFleet", "List workers and the backlog of each task pool").
			returns(200, "Fleet"),
		s.queueRow("GET /v1/fleet/backlog", ScopeOperator, s.getDemand,
			"getBacklog", "Read the demand of a task pool: its backlog, and the slots that it needs").
			note("For autoscalers: `slots`, divided by the slots of a worker, is the number of workers that do the "+
				"queued work in the time `within`, in addition to the running tasks.").
			takes("pool", "within").
			returns(200, "Demand").
			fails(errcode.BadParameter),
		s.queueRow("GET /v1/pauses", ScopeOperator, s.getPauses,
			"listPauses", "List what is paused").
			returns(200, "[]Pause"),
		s.queueRow("POST /v1/pause", ScopeOperator, s.postPause,
			"pause", "Pause a tenant, a task pool or the fleet").
			note("The target is fleet, pool/NAME or tenant/NAME. Its queued tasks do not start; running tasks "+
				"continue, and tasks are still accepted. Owners of waiting tasks can read the reason.").
			body("application/json", "PauseOptions").
			returns(200, "Pause").
			fails(errcode.BadName, errcode.UnknownTenant),
		s.queueRow("POST /v1/resume", ScopeOperator, s.postResume,
			"resume", "End a pause").
			body("application/json", "PauseOptions").
			returns(200, "Resumed").
			fails(errcode.BadName),
		s.queueRow("GET /v1/usage", anyScope, s.getUsage,
			"listUsage", "Read what tasks used, by tenant and day").
			note("Of the caller's tenant, or with `all=true` and the scope operator, of all tenants. Workers report "+
				"every 5 seconds, so the latest seconds may be missing.").
			takes("since", "before", "all").
			returns(200, "[]TenantUsage").
			fails(errcode.BadParameter, errcode.Forbidden),
		s.queueRow("GET /v1/limits", ScopeOperator, s.getAllLimits,
			"listLimits", "List the limits of tenants that were set at run time").
			returns(200, "[]TenantLimitsInfo"),
		s.queueRow("GET /v1/limits/{tenant}", ScopeOperator, s.getLimits,
			"getLimits", "Read the limits of a tenant").
			returns(200, "TenantLimitsInfo").
			fails(errcode.BadName, errcode.UnknownTenant),
		s.queueRow("PUT /v1/limits/{tenant}", ScopeOperator, s.putLimits,
			"putLimits", "Replace the limits of a tenant that were set at run time").
			note("They replace those of the settings, without a restart. An empty object restores the settings.").
			body("application/json", "TenantLimits").
			returns(200, "TenantLimitsInfo").
			fails(errcode.BadName, errcode.UnknownTenant),
		s.queueRow("PATCH /v1/limits/{tenant}", ScopeOperator, s.patchLimits,
			"changeLimits", "Set limits of a tenant, and keep the others").
			body("application/json", "TenantLimits").
			returns(200, "TenantLimitsInfo").
			fails(errcode.BadName, errcode.UnknownTenant),
		s.queueRow("POST /v1/workers/{worker}/drain", ScopeOperator, s.postDrain,
			"drainWorker", "Order a worker to drain and exit").
			note("The worker claims no more tasks, and exits once its tasks have ended; those that run longer than "+
				"its worker.drain are requeued, without an attempt being counted.").
			returns(200, "Worker").
			fails(errcode.UnknownWorker, errcode.NotDrainable),
		s.queueRow("GET /v1/tenants", ScopeOperator, s.getTenants,
			"listTenants", "List tenants").
			returns(200, "[]Tenant"),
		s.queueRow("PUT /v1/tenants/{tenant}", ScopeOperator, s.putTenant,
			"putTenant", "Create a tenant").
			note("It may do what a tenant without settings of its own may. The response for an existing tenant is the "+
				"same.").
			returns(200, "Tenant").
			fails(errcode.BadName),
		s.queueRow("DELETE /v1/tenants/{tenant}", ScopeOperator, s.deleteTenant,
			"deleteTenant", "Remove a tenant that was created at run time, its tokens and its automations").
			note("Its queued tasks are refused when their turn comes. Its workspaces and records stay.").
			returnsNothing(204).
			fails(errcode.BadName, errcode.UnknownTenant, errcode.InSettings),
		s.queueRow("GET /v1/tokens", ScopeOperator, s.getTokens,
			"listTokens", "List tokens, without their secrets").
			takes("tenant").
			returns(200, "[]Token"),
		s.queueRow("POST /v1/tokens", ScopeOperator, s.postToken,
			"createToken", "Create a token").
			note("The response has the token itself, which is not stored and cannot be read again. It works at once, "+
				"with every part of the fleet.").
			body("application/json", "TokenOptions").
			returns(200, "NewToken").
			fails(errcode.BadName, errcode.UnknownTenant),
		s.queueRow("DELETE /v1/tokens/{token}", ScopeOperator, s.deleteToken,
			"revokeToken", "Revoke a token").
			note("Requests with it are refused at once, and its streams end. `token` is the id, not the token itself.").
			returnsNothing(204).
			fails(errcode.UnknownToken),
		row("GET /metrics", ScopeOperator, s.getMetrics, "getMetrics", "Metrics of this process, for Prometheus").
			returnsMedia(200, "text/plain", "Text"),
	}
}
