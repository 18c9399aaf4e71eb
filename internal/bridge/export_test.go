package bridge

import "github.com/modelcontextprotocol/go-sdk/mcp"

// What the fixtures of the conformance suite need of the tasks extension.
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

// Extend adds to the MCP servers of the bridge. Call it before the first request.
func (b *Bridge) Extend(options func(*mcp.ServerOptions), server func(*mcp.Server)) {
	b.extend = extension{options, server}
}
