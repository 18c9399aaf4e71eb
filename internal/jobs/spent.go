package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Spend adds tokens to what the tenant has spent on a UTC day, in the whole fleet, and returns the sum. After an
// error the tokens may or may not be counted.
func (c *Client) Spend(ctx context.Context, tenant string, day time.Time, tokens int) (total int, err error) {
	if total, err = c.addTo(ctx, spentSubject(tenant, day), tokens); err != nil {
		return 0, fmt.Errorf("count tokens of %s: %w", tenant, err)
	}
	return total, nil
}

// Spent returns the tokens that the tenant has spent on a UTC day.
func (c *Client) Spent(ctx context.Context, tenant string, day time.Time) (total int, err error) {
	if total, err = c.counter(ctx, streamSpent, spentSubject(tenant, day)); err != nil {
		return 0, fmt.Errorf("read the spent tokens of %s: %w", tenant, err)
	}
	return total, nil
}

// parseCounter parses the value of a counter: {"val": "42"}.
func parseCounter(data []byte) (int, error) {
	var v struct {
		Val   string `json:"val"`
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return 0, err
	}
	if v.Error != nil {
		return 0, errors.New(v.Error.Description)
	}
	return strconv.Atoi(v.Val)
}

func spentSubject(tenant string, day time.Time) string {
	return "spent." + tenant + "." + day.UTC().Format("20060102")
}
