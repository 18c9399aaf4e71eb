package metrics

var pool = Attribute{Name: "pool", Meaning: "the task pool"}

// The metrics of tasks. The queue's client records them, in workers and in the processes that accept tasks.
var (
	TasksSubmitted = Metric{
		Name: "codefleet.tasks.submitted", Kind: Counter, Unit: "{task}",
		Help: "Tasks queued by this process; not those published over NATS.", Attributes: []Attribute{pool},
	}
	TasksEnded = Metric{
		Name: "codefleet.tasks.ended", Kind: Counter, Unit: "{task}",
		Help: "Tasks that reached a terminal status.",
		Attributes: []Attribute{pool, {
			Name: "status", Meaning: "the status",
			Values: []string{"succeeded", "failed", "blocked", "timeout", "cancelled", "expired", "dead"},
		}},
	}
	TasksRetried = Metric{
		Name: "codefleet.tasks.retried", Kind: Counter, Unit: "{run}",
		Help:       "Runs after which the task was requeued, except those that a drain ended.",
		Attributes: []Attribute{pool},
	}
	TasksLost = Metric{
		Name: "codefleet.tasks.lost", Kind: Counter, Unit: "{run}",
		Help: "Runs abandoned because their lease was lost. Their tasks are not lost.", Attributes: []Attribute{pool},
	}
	DeadLettersRemoved = Metric{
		Name: "codefleet.tasks.dead_letters_removed", Kind: Counter, Unit: "{letter}",
		Help: "Dead letters removed because their tenant had more than queue.dead_letters.",
	}
	PayloadsRemoved = Metric{
		Name: "codefleet.tasks.payloads_removed", Kind: Counter, Unit: "{object}",
		Help: "Large results, recorded tool calls and data of dead letters removed because of queue.payload_mb.",
	}
	StorageRefusals = Metric{
		Name: "codefleet.tasks.storage_full", Kind: Counter, Unit: "{event}",
		Help: "Tasks not accepted because their tenant would have more data in the queue than queue.payload_mb.",
	}
	TasksRefused = Metric{
		Name: "codefleet.tasks.refused", Kind: Counter, Unit: "{event}",
		Help: "Events that the fleet refused to accept as tasks.",
	}
	TasksRunning = Metric{
		Name: "codefleet.tasks.running", Kind: UpDown, Unit: "{task}",
		Help: "Tasks running on this worker.", Attributes: []Attribute{pool},
	}
	TaskQueued = Metric{
		Name: "codefleet.task.queued", Kind: Histogram, Unit: Seconds,
		Help: "Time from the submission of a task to its first run.", Attributes: []Attribute{pool},
	}
	TaskRun = Metric{
		Name: "codefleet.task.run", Kind: Histogram, Unit: Seconds,
		Help: "Duration of one run of a task.", Attributes: []Attribute{pool},
	}
	TenantQueued = Metric{
		Name: "codefleet.task.tenant_queued", Kind: Histogram, Unit: Seconds,
		Help: "Time from the submission of a task to its first run, by tenant.", Attributes: []Attribute{{
			Name: "tenant", Meaning: "the tenant; a process names the first 50, and counts the others as `(other)`",
		}},
	}
)

// The metrics of the whole fleet. Each ingest reads them from the queue when it is scraped, at most every few seconds.
// So all of them report about the same values.
var (
	priority = Attribute{Name: "priority", Meaning: "the priority", Values: []string{"high", "normal", "low"}}

	BacklogTasks = Metric{
		Name: "codefleet.backlog.tasks", Kind: Gauge, Unit: "{task}",
		Help: "Unfinished tasks, without delayed ones.",
		Attributes: []Attribute{pool, priority, {
			Name: "state", Meaning: "whether a worker has it", Values: []string{"queued", "running"},
		}},
	}
	BacklogOldest = Metric{
		Name: "codefleet.backlog.oldest", Kind: Gauge, Unit: Seconds,
		Help: "Age of the oldest queued task.", Attributes: []Attribute{pool, priority},
	}
	BacklogSlotTime = Metric{
		Name: "codefleet.backlog.slot_time", Kind: Gauge, Unit: Seconds,
		Help:       "Estimated total slot time of the queued tasks.",
		Attributes: []Attribute{pool, priority},
	}
	BacklogTenant = Metric{
		Name: "codefleet.backlog.tenant", Kind: Gauge, Unit: "{task}",
		Help: "Queued tasks by tenant.",
		Attributes: []Attribute{{
			Name: "tenant", Meaning: "one of the 20 tenants with the most queued tasks, or `(other)`",
		}},
	}
	FleetWorkers = Metric{
		Name: "codefleet.fleet.workers", Kind: Gauge, Unit: "{worker}",
		Help: "Workers that are present.",
		Attributes: []Attribute{{
			Name: "state", Meaning: "whether they claim tasks", Values: []string{"running", "draining"},
		}},
	}
	FleetSlots = Metric{
		Name: "codefleet.fleet.slots", Kind: Gauge, Unit: "{slot}",
		Help: "Slots of running workers.",
		Attributes: []Attribute{{
			Name: "state", Meaning: "whether a task uses them", Values: []string{"busy", "free"},
		}},
	}
	QueueMessages = Metric{
		Name: "codefleet.queue.messages", Kind: Gauge, Unit: "{message}",
		Help: "Messages that the queue stores.", Attributes: []Attribute{stream},
	}
	QueueSize = Metric{
		Name: "codefleet.queue.size", Kind: Gauge, Unit: "{byte}",
		Help: "Bytes that the queue stores, of one replica.", Attributes: []Attribute{stream},
	}
)

var stream = Attribute{
	Name: "stream", Meaning: "the NATS stream, such as `TASKS`, `DLQ` (dead letters), `EVENTS` (that wait for triggers) " +
		"or `ORDERED` (deliveries to webhooks)",
}

var kind = Attribute{Name: "kind", Meaning: "what acted", Values: []string{"schedule", "trigger", "webhook"}}

// The metrics of schedules, triggers and webhooks.
var (
	AutomationActions = Metric{
		Name: "codefleet.automation.actions", Kind: Counter, Unit: "{action}",
		Help: "Firings of schedules, events that triggers matched, and tries to deliver to webhooks.",
		Attributes: []Attribute{kind, {
			Name: "outcome", Meaning: "`refused`: the task is not valid; `failed`: the target did not accept the delivery",
			Values: []string{"done", "refused", "failed"},
		}},
	}
	AutomationLate = Metric{
		Name: "codefleet.automation.late", Kind: Histogram, Unit: Seconds,
		Help: "Time from a schedule's firing time until its task was submitted.",
	}
)

var environment = Attribute{Name: "environment", Meaning: "the environment of the boxes"}

// The metrics of a worker's pool.
var (
	PoolBoxes = Metric{
		Name: "codefleet.pool.boxes", Kind: Gauge, Unit: "{box}",
		Help: "Boxes in each state.",
		Attributes: []Attribute{environment, {
			Name: "state", Meaning: "the state of the box", Values: []string{"warming", "ready", "bound", "acquired"},
		}},
	}
	PoolWaiting = Metric{
		Name: "codefleet.pool.waiting", Kind: Gauge, Unit: "{task}",
		Help: "Tasks waiting for a box.",
		Attributes: []Attribute{environment, {
			Name: "for", Meaning: "what is missing: a box, or the memory for one",
			Values: []string{"sandbox", "memory"},
		}},
	}
	PoolFailing = Metric{
		Name: "codefleet.pool.failing", Kind: Gauge, Unit: "{environment}",
		Help: "1 while no box of the environment can be created.",
		Attributes: []Attribute{environment, {
			Name: "reason", Meaning: "why ([reasons](troubleshooting.md))",
			Values: []string{
				"engine_missing", "engine_old", "engine_crashed", "no_virtualisation", "image_missing",
				"image_too_large", "image_without_python", "image_broken", "disk_full", "requirements_failed",
				"preload_failed", "boot_failed",
			},
		}},
	}
	PoolMade = Metric{
		Name: "codefleet.pool.made", Kind: Gauge, Unit: Seconds,
		Help: "Time to create the environment's newest box.",
		Attributes: []Attribute{environment, {
			Name: "how", Meaning: "booted, or restored from a snapshot", Values: []string{"booted", "restored"},
		}},
	}
	PoolEvents = Metric{
		Name: "codefleet.pool.events", Kind: Counter, Unit: "{event}",
		Help: "Lifecycle events of boxes.",
		Attributes: []Attribute{{
			Name: "event", Meaning: "what happened to a box; `acquired_cold`: acquired by a task that had to wait " +
				"until it was created",
			Values: []string{
				"created", "restored", "create_error", "acquired", "acquired_cold", "discarded", "evicted", "died",
			},
		}},
	}
)

var server = Attribute{Name: "server", Meaning: "the MCP server"}

// The metrics of the MCP servers behind a worker's tools.
var (
	ToolsUpstream = Metric{
		Name: "codefleet.tools.upstream", Kind: Gauge, Unit: "{connection}",
		Help: "1 for the current state of the connection to an MCP server.",
		Attributes: []Attribute{server, {
			Name: "state", Meaning: "`idle`: no connection, because none is needed",
			Values: []string{"idle", "up", "down"},
		}},
	}
	ToolsUpstreamFailures = Metric{
		Name: "codefleet.tools.upstream_failures", Kind: Gauge, Unit: "{attempt}",
		Help: "Consecutive failed attempts to connect to an MCP server.", Attributes: []Attribute{server},
	}
)

// Table lists every metric once.
var Table = []Metric{
	TasksSubmitted, TasksEnded, TasksRetried, TasksLost, TasksRefused,
	DeadLettersRemoved, PayloadsRemoved, StorageRefusals, TasksRunning, TaskQueued, TaskRun, TenantQueued,
	BacklogTasks, BacklogOldest, BacklogSlotTime, BacklogTenant, FleetWorkers, FleetSlots, QueueMessages, QueueSize,
	AutomationActions, AutomationLate,
	PoolBoxes, PoolWaiting, PoolFailing, PoolMade, PoolEvents,
	ToolsUpstream, ToolsUpstreamFailures,
}
