package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/codefleet/codefleet/schemas"
)

// Types for schedules. Package schemas documents their fields.
type (
	// ScheduleSpec is what a schedule does: it submits its task at the times of a cron expression.
	ScheduleSpec = schemas.ScheduleSpec
	// Schedule is a stored schedule with its state.
	Schedule = schemas.Schedule
)

// AddSchedule stores a schedule that submits task at the times of s.Cron. s.Task is ignored. The task must not set
// IdempotencyKey, Source, ExpiresAt or NotBefore. Adding the same schedule again changes nothing; if a different
// schedule has the name, the error has the code "automation_exists". Over NATS the errors of all methods for schedules
// have the code "http_only".
func (c *Client) AddSchedule(ctx context.Context, s ScheduleSpec, task Submission) (Schedule, error) {
	var err error
	if s.Task, err = json.Marshal(task); err != nil {
		return Schedule{}, fmt.Errorf("encode task: %w", err)
	}
	return sendJSON[Schedule](ctx, c, http.MethodPost, s, "schedules")
}

// Schedules returns the tenant's schedules, sorted by name.
func (c *Client) Schedules(ctx context.Context) ([]Schedule, error) {
	return get[[]Schedule](ctx, c, url.Values{}, "schedules")
}

// Schedule returns a schedule. If it does not exist, the error has the code "unknown_automation".
func (c *Client) Schedule(ctx context.Context, name string) (Schedule, error) {
	return get[Schedule](ctx, c, url.Values{}, "schedules", name)
}

// RemoveSchedule deletes a schedule. Tasks that the schedule has submitted continue. The request is not retried.
func (c *Client) RemoveSchedule(ctx context.Context, name string) error {
	return c.remove(ctx, "schedules", name)
}

// PauseSchedule pauses a schedule. Firings during the pause do not take place later.
func (c *Client) PauseSchedule(ctx context.Context, name string) (Schedule, error) {
	return sendRequest[Schedule](ctx, c, httpRequest{method: http.MethodPost}, "schedules", name, "pause")
}

// ResumeSchedule ends the pause of a schedule.
func (c *Client) ResumeSchedule(ctx context.Context, name string) (Schedule, error) {
	return sendRequest[Schedule](ctx, c, httpRequest{method: http.MethodPost}, "schedules", name, "resume")
}

// RunSchedule submits a schedule's task now, in addition to its firings. The request is not retried.
func (c *Client) RunSchedule(ctx context.Context, name string) (Record, error) {
	return sendRequest[Record](ctx, c, httpRequest{method: http.MethodPost, once: true}, "schedules", name, "run")
}
