package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// PageLink returns a page link. The first user who opens the link within an hour is logged in to the fleet's web page
// with the client's token. Each call returns a new link.
func (c *Client) PageLink(ctx context.Context) (string, error) {
	created, err := sendRequest[struct {
		Link string `json:"link"`
	}](ctx, c, httpRequest{method: http.MethodPost}, "page", "links")
	if err != nil {
		return "", err
	}
	d, err := c.overHTTP()
	if err != nil {
		return "", err
	}
	link, err := url.Parse(created.Link)
	if err != nil {
		return "", err
	}
	u := *d.base()
	u.Path, u.RawQuery = strings.TrimSuffix(u.Path, "/")+link.Path, link.RawQuery
	return u.String(), nil
}
