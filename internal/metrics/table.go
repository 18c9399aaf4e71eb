package metrics

var pool = Attribute{Name: "pool", Meaning: "the task pool"}

// The metrics of tasks. The queue's client records them, in workers and in the processes that accept tasks.
var (
	TasksSubmitted = Metric{
		Name: "codefleet.tasks.submitted", Kind: Counter, Unit: "{task}",
		Help: "Tasks queued.", Attributes: []Attribute{pool},
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
		Help: "Runs after which the task was requeued.", Attributes: []Attribute{pool},
	}
	TasksLost = Metric{
		Name: "codefleet.tasks.lost", Kind: Counter, Unit: "{run}",
		Help: "Runs abandoned because their lease was lost.", Attributes: []Attribute{pool},
	}
	DeadLettersRemoved = Metric{
		Name: "codefleet.tasks.dead_letters_removed", Kind: Counter, Unit: "{letter}",
		Help: "Dead letters removed because their tenant has more than queue.dead_letters.",
	}
	PayloadsRemoved = Metric{
		Name: "codefleet.tasks.payloads_removed", Kind: Counter, Unit: "{object}",
		Help: "Large results, recorded tool calls and data of dead letters removed because of queue.payload_mb.",
	}
	StorageRefusals = Metric{
		Name: "codefleet.tasks.storage_full", Kind: Counter, Unit: "{event}",
		Help: "Tasks not accepted because their tenant has more data in the queue than queue.payload_mb.",
	}
	TasksRefused = Metric{
		Name: "codefleet.tasks.refused", Kind: Counter, Unit: "{event}",
		Help: "Events refused as tasks.",
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
		Help: "Events in the lives of boxes.",
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
			Name: "state", Meaning: "`idle`: not needed yet", Values: []string{"idle", "up", "down"},
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
	DeadLettersRemoved, PayloadsRemoved, StorageRefusals, TasksRunning, TaskQueued, TaskRun,
	PoolBoxes, PoolWaiting, PoolFailing, PoolMade, PoolEvents,
	ToolsUpstream, ToolsUpstreamFailures,
}
