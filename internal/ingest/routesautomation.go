package ingest

import "github.com/codefleet/codefleet/internal/errcode"

// automationRow returns a route about one schedule, trigger or webhook.
func (s *Server) automationRow(pattern, scope string, h handler, id, summary string) route {
	return s.queueRow(pattern, scope, h, id, summary).fails(errcode.BadName, errcode.UnknownAutomation)
}

func (s *Server) scheduleRoutes() []route {
	return []route{
		s.queueRow("GET /v1/schedules", ScopeRead, s.getSchedules, "listSchedules", "List schedules").
			returns(200, "[]Schedule"),
		s.queueRow("POST /v1/schedules", ScopeSubmit, s.postSchedule, "addSchedule", "Add a schedule").
			note("Its task is submitted at the times of a cron expression: see docs/automation.md. Adding the same "+
				"schedule again changes nothing.").
			body("application/json", "ScheduleSpec").
			returns(200, "Schedule").
			fails(submitErrors...).fails(errcode.AutomationExists, errcode.AutomationLimit),
		s.automationRow("GET /v1/schedules/{name}", ScopeRead, s.getSchedule, "getSchedule", "Read a schedule").
			returns(200, "Schedule"),
		s.automationRow("DELETE /v1/schedules/{name}", ScopeSubmit, s.deleteSchedule,
			"deleteSchedule", "Remove a schedule").
			returnsNothing(204),
		s.automationRow("POST /v1/schedules/{name}/pause", ScopeSubmit, s.pauseSchedule(true),
			"pauseSchedule", "Pause a schedule").
			note("Firings during the pause do not take place later.").
			returns(200, "Schedule").fails(errcode.Busy),
		s.automationRow("POST /v1/schedules/{name}/resume", ScopeSubmit, s.pauseSchedule(false),
			"resumeSchedule", "Resume a schedule").
			returns(200, "Schedule").fails(errcode.Busy),
		s.automationRow("POST /v1/schedules/{name}/run", ScopeSubmit, s.runSchedule,
			"runSchedule", "Submit a schedule's task now").
			returns(200, "Record").returns(202, "Record").
			fails(submitErrors...),
	}
}

func (s *Server) triggerRoutes() []route {
	return []route{
		s.queueRow("GET /v1/triggers", ScopeRead, s.getTriggers, "listTriggers", "List triggers").
			returns(200, "[]Trigger"),
		s.queueRow("POST /v1/triggers", ScopeSubmit, s.postTrigger, "addTrigger", "Add a trigger").
			note("Its task is submitted for each event that it matches: see docs/automation.md. Adding the same "+
				"trigger again changes nothing.").
			body("application/json", "TriggerSpec").
			returns(200, "Trigger").
			fails(submitErrors...).fails(errcode.AutomationExists, errcode.AutomationLimit),
		s.automationRow("GET /v1/triggers/{name}", ScopeRead, s.getTrigger, "getTrigger", "Read a trigger").
			returns(200, "Trigger"),
		s.automationRow("DELETE /v1/triggers/{name}", ScopeSubmit, s.deleteTrigger,
			"deleteTrigger", "Remove a trigger").
			returnsNothing(204),
		s.automationRow("POST /v1/triggers/{name}/test", ScopeSubmit, s.testTrigger,
			"testTrigger", "Show what a trigger does with an event").
			note("Nothing is submitted.").
			body("application/cloudevents+json", "AnyEvent").
			returns(200, "TriggerTest").
			fails(errcode.BadEvent),
	}
}

func (s *Server) webhookRoutes() []route {
	return []route{
		s.queueRow("GET /v1/webhooks", ScopeRead, s.getWebhooks, "listWebhooks", "List webhooks").
			returns(200, "[]Webhook"),
		s.queueRow("POST /v1/webhooks", ScopeSubmit, s.postWebhook, "addWebhook", "Add a webhook").
			note("It sends results or events to a URL, signed: see docs/automation.md. Only this response has the "+
				"secret of the signatures.").
			body("application/json", "WebhookSpec").
			returns(200, "Webhook").
			fails(errcode.BadName, errcode.AutomationExists, errcode.AutomationLimit),
		s.automationRow("DELETE /v1/webhooks/{name}", ScopeSubmit, s.deleteWebhook,
			"deleteWebhook", "Remove a webhook").
			returnsNothing(204),
	}
}

func (s *Server) workflowRoutes() []route {
	named := func(method, path, scope string, h handler, id, summary string) route {
		return s.queueRow(method+" /v1/workflows/runs/{run}"+path, scope, h, id, summary).
			returns(200, "WorkflowRun").
			fails(errcode.UnknownRun)
	}
	return []route{
		row("POST /v1/workflows/validate", ScopeSubmit, s.postWorkflowCheck, "validateWorkflow", "Check a workflow").
			note("Nothing is run. The error lists everything that is wrong: see docs/workflows.md.").
			body("application/json", "WorkflowRequest").
			returns(200, "WorkflowCheck").
			fails(errcode.BadJSON, errcode.BadWorkflow),
		s.queueRow("POST /v1/workflows/runs", ScopeSubmit, s.postRun, "startRun", "Run a workflow").
			note("With an idempotency key that was used before, the response is that run.").
			takes("Idempotency-Key").
			body("application/json", "WorkflowRequest").
			returns(200, "WorkflowRun").
			fails(submitErrors...).fails(errcode.BadWorkflow, errcode.AutomationLimit),
		s.queueRow("GET /v1/workflows/runs", ScopeRead, s.getRuns,
			"listRuns", "List workflow runs, the latest change first").
			takes("asking", "limit").
			returns(200, "[]WorkflowRun").
			fails(errcode.BadParameter),
		named("GET", "", ScopeRead, s.getRun, "getRun", "Read a workflow run, with the results of its steps"),
		named("POST", "/cancel", ScopeSubmit, s.cancelRun, "cancelRun", "Cancel a workflow run").
			note("What runs is cancelled, then the steps of `finally` run. A second request cancels these, too."),
		named("POST", "/answer", ScopeSubmit, s.answerRun, "answerRun", "Answer a step that asks").
			note("The first answer counts.").
			body("application/json", "WorkflowAnswer").
			fails(errcode.BadJSON, errcode.BadAnswer, errcode.NotWaiting, errcode.UnknownStep),
		named("POST", "/rerun", ScopeSubmit, s.rerun, "rerunRun", "Run a workflow again from a step").
			note("A new run keeps the results of the earlier steps. Its workspace has the files that the step began "+
				"with.").
			takes("Idempotency-Key").
			body("application/json", "WorkflowRerun").
			fails(submitErrors...).
			fails(errcode.BadWorkflow, errcode.RunActive, errcode.UnknownStep, errcode.UnknownVersion,
				errcode.NoWorkspaces, errcode.AutomationLimit),
	}
}
