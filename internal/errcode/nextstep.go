package errcode

// NextStep says what to do after an error, for users who do not send HTTP requests themselves. An error's own hint
// refers to HTTP, task fields and settings.
type NextStep struct {
	Command string // for a person at a command line
	Tool    string // for an MCP client, which can only call the bridge's tools
}

// Next returns the next step after an error with this code. Its fields are empty where the error's own hint is enough.
func Next(code string) NextStep { return nextSteps[code] }

var nextSteps = map[string]NextStep{
	UnknownTask: {
		Command: "codefleet tasks  (ended tasks are kept for some days)",
		Tool:    "list_tasks lists the tasks; ended tasks are kept for some days",
	},
	Unauthorized: {
		Command: "set CODEFLEET_TOKEN to a token of this fleet, or --fleet to its fleet.json",
		Tool:    "the user must configure a token of this fleet in the MCP client",
	},
	UnknownTool: {
		Command: "codefleet tools",
		Tool:    "search_tools finds tools by what they do, and list_available_tools lists them",
	},
	UnknownSkill: {Command: "codefleet skills  (lists the skills)", Tool: "list_skills lists the skills"},
	SkillConflict: {
		Command: "codefleet skills show NAME, then codefleet skills save --base VERSION, or another name",
		Tool:    "get_skill returns the current version: pass it to save_skill as base, or use another name",
	},
	UnknownSession: {
		Command: "codefleet sessions list; codefleet run -s NAME begins a session",
		Tool:    "list_sessions lists the sessions; execute_task with session begins one",
	},
	UnknownRun: {
		Command: "codefleet workflow runs  (lists the runs)",
		Tool:    "list_workflow_runs lists the runs",
	},
	UnknownStep: {
		Command: "codefleet workflow status RUN  (lists the steps)",
		Tool:    "get_workflow_run lists the steps",
	},
	UnknownCheckpoint: {
		Command: "codefleet sessions show NAME  (lists the checkpoints)",
		Tool:    "get_session lists the newest checkpoints",
	},
	UnknownApproval: {Command: "codefleet approvals", Tool: "get_task shows the calls that wait for approval"},
	UnknownPin: {
		Command: "codefleet workspace pin  (lists the pins)",
		Tool:    "list_commits lists the generations",
	},
	UnknownVersion: {
		Command: "codefleet workspace log  (lists the kept versions)",
		Tool:    "list_commits lists the kept versions",
	},
	UnknownFile: {Command: "codefleet workspace ls", Tool: "list_files lists the files"},
	UnknownState: {
		Command: "codefleet state set",
		Tool:    "save_state creates it",
	},
	UnknownAutomation: {
		Command: "codefleet schedules ls, codefleet triggers ls or codefleet webhooks ls",
		Tool:    "list_automation lists schedules, triggers and webhooks",
	},
	AutomationLimit: {
		Command: "cancel some of the runs that codefleet workflow runs lists; or remove some of what " +
			"codefleet schedules ls, codefleet triggers ls or codefleet webhooks ls lists",
		Tool: "cancel some of the runs that list_workflow_runs lists, or remove some of what list_automation lists",
	},
	UnknownToken:  {Command: "codefleet tokens  (lists the tokens)"},
	UnknownWorker: {Command: "codefleet workers  (lists the workers)"},
	NotRetryable: {
		Command: "codefleet status ID; codefleet rerun ID also runs a successful task again",
		Tool:    "get_task shows its status; submit_task submits it again",
	},
	NotRedrivable: {
		Command: "codefleet dead  (lists the tasks that can be redriven)",
		Tool:    "list_dead_tasks lists the tasks that can be run again; submit_task submits a new one",
	},
	Corrupt:  {Command: "codefleet workspace check, then codefleet workspace repair"},
	DiskFull: {Command: "free space on the worker's disk, then codefleet dead redrive ID"},
	NoKey:    {Command: "configure the key, then codefleet dead redrive ID"},
	WorkspaceLimit: {
		Command: "codefleet workspace ls -r and codefleet workspace rm, or raise limits.workspace_mb",
		Tool:    "have a program remove files below /workspace, or use another workspace",
	},
	StateConflict:      {Tool: "get_state returns the current version: repeat the change on it"},
	PreconditionFailed: {Tool: "get_state returns the current version: repeat the change on it"},
	SkillFailed:        {Command: "codefleet result ID, with the task's id, prints the output of the smoke run"},
	MemoryLimit: {
		Command: "codefleet run --memory MB (limits.memory_mb), or work on smaller pieces",
		Tool:    "work on smaller pieces",
	},
}
