package bridge

import "github.com/modelcontextprotocol/go-sdk/mcp"

// The parts of the tasks extension that the fixtures of the conformance suite use.
type (
	TaskState  = taskState
	TaskResult = taskResult
	TaskParams = taskParams
	TaskAck    = taskAck
)

var (
	AcceptsTasks     = acceptsTasks
	CheckTaskRequest = checkTaskRequest
	ErrNoTasks       = errNoTasks
)

// NewTaskResult returns the result of a request that returns a task.
func NewTaskResult(resultType string, state TaskState) *TaskResult {
	return &taskResult{ResultType: resultType, taskState: state}
}

// Extend changes the MCP servers of the bridge. Call it before the first request.
func (b *Bridge) Extend(options func(*mcp.ServerOptions), server func(*mcp.Server)) {
	b.extend = extension{options, server}
}
