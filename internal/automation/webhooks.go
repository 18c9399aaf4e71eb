package automation

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

const (
	kindWebhook   = "webhook"
	secretPrefix  = "whsec_"
	secretBytes   = 24
	sendTimeout   = 10 * time.Second // time limit of one request
	maxResponse   = 4 << 10          // bytes of a response that are read, so that the connection can be used again
	maxURL        = 2048             // bytes
	perWebhook    = 4                // requests of one process at once
	busyDelay     = time.Second      // until the next try, if too many requests are in progress
	minRetry      = 2 * time.Second
	maxRetry      = time.Hour
	webhookOrigin = "codefleet"

	// perTenant is how many requests one process sends at once for one tenant. In total it sends more
	// (followAtOnce in package jobs), so that slow targets of one tenant delay no other tenant.
	perTenant = 8
)

// newSender returns the client that sends to webhooks. It follows no redirects.
func newSender(private []netip.Prefix) *http.Client {
	return &http.Client{
		Timeout: sendTimeout,
		Transport: &http.Transport{
			DialContext: egress.Public{Private: private}.DialContext, TLSHandshakeTimeout: sendTimeout,
			MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: time.Minute, MaxConnsPerHost: 16,
			ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// AddWebhook stores a new webhook, after a handshake with its target, and returns it with its secret, which no other
// method returns.
func (s *Service) AddWebhook(ctx context.Context, tenant string, in schemas.WebhookSpec) (schemas.Webhook, error) {
	in.Type = cmp.Or(in.Type, schemas.TypeResult)
	if err := checkWebhook(in); err != nil {
		return schemas.Webhook{}, err
	}
	store, now, err := s.open(ctx)
	if err != nil {
		return schemas.Webhook{}, err
	}
	if !in.NoHandshake {
		if err := s.handshake(ctx, in.URL); err != nil {
			return schemas.Webhook{}, err
		}
	}
	if names.MatchPattern(in.Type, schemas.TypeResult) {
		if err := s.changing.Lock(ctx); err != nil {
			return schemas.Webhook{}, err
		}
		defer s.changing.Unlock()
		if err := errors.Join(s.forgetResults(ctx, tenant), s.keepWebhookResults(ctx, tenant)); err != nil {
			return schemas.Webhook{}, err
		}
	}
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	doc := schemas.Webhook{
		WebhookSpec: in, CreatedAt: now, Secret: secretPrefix + base64.StdEncoding.EncodeToString(secret),
	}
	k := key{kindWebhook, tenant, in.Name}
	doc, exists, err := create(ctx, store, k, doc)
	if exists {
		return schemas.Webhook{}, nameTaken(k)
	}
	return doc, err
}

func checkWebhook(in schemas.WebhookSpec) error {
	if err := checkName(in.Name); err != nil {
		return err
	}
	u, err := url.Parse(in.URL)
	if err != nil || u.Hostname() == "" || u.User != nil || len(in.URL) > maxURL ||
		u.Scheme != "https" && u.Scheme != "http" {
		return refuse(errcode.BadData, "/url", "it must be an http or https URL without a user, of at most %d bytes",
			maxURL)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return refuse(errcode.BadData, "/url", "the port must be from 1 to 65535")
		}
	}
	return checkMatcher(schemas.TriggerSpec{Type: in.Type, Filter: in.Filter})
}

// handshake asks the target whether the fleet may send to it.
func (s *Service) handshake(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodOptions, target, nil)
	if err != nil {
		return refuse(errcode.BadData, "/url", "it is not a URL")
	}
	req.Header.Set("WebHook-Request-Origin", webhookOrigin)
	resp, err := s.sender.Do(req)
	if err != nil {
		return refuse(errcode.BadData, "/url", "the handshake failed: %s", sendProblem(err))
	}
	defer closeBody(resp)
	if origin := resp.Header.Get("WebHook-Allowed-Origin"); resp.StatusCode/100 != 2 ||
		origin != "*" && origin != webhookOrigin {
		r := refuse(errcode.BadData, "/url", "the target does not permit the fleet to send: it responded to OPTIONS "+
			"with the status %d and WebHook-Allowed-Origin %q; want a status from 200 to 299 and %q",
			resp.StatusCode, text.Truncate(origin, 200), webhookOrigin)
		r.Hint = "let the target respond to the handshake, or skip it with no_handshake"
		return r
	}
	return nil
}

// closeBody reads the rest of a response, and closes its body.
func closeBody(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxResponse) // so that the next request can use the connection
	_ = resp.Body.Close()
}

// sendProblem describes an error of a request. The description contains neither the URL, which may have a secret, nor
// addresses of this host.
func sendProblem(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		if e.Timeout() {
			return "the target did not respond in time"
		}
		err = e.Err
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return egress.WithoutAddresses(err)
	}
	return text.Truncate(err.Error(), 200)
}

// Webhooks lists a tenant's webhooks, sorted by name, without their secrets.
func (s *Service) Webhooks(ctx context.Context, tenant string) ([]schemas.Webhook, error) {
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return nil, err
	}
	list, err := readAll[schemas.Webhook](ctx, store, kindWebhook, tenant)
	for i := range list {
		list[i].Secret = ""
	}
	return list, err
}

// RemoveWebhook deletes a webhook. A delivery that waits is dropped at its next try.
func (s *Service) RemoveWebhook(ctx context.Context, tenant, name string) error {
	if err := s.remove(ctx, key{kindWebhook, tenant, name}); err != nil {
		return err
	}
	return s.forgetUnused(ctx, tenant)
}

// deliverOrdered stores the deliveries of an event that has a partition key. It considers all webhooks that exist
// when it is called.
func (s *Service) deliverOrdered(
	ctx context.Context, store *jobs.Automations, c *cache, tenant string, e *incoming,
) error {
	if err := awaitLatest(ctx, store, c); err != nil {
		return err
	}
	return s.storeDeliveries(ctx, store, c, tenant, e)
}

// storeDeliveries stores a delivery to each webhook in the cache that matches an event. Another call for the same event
// stores no second delivery.
func (s *Service) storeDeliveries(
	ctx context.Context, store *jobs.Automations, c *cache, tenant string, e *incoming,
) error {
	for _, w := range c.webhooksOf(tenant) {
		if w.doc.Gone {
			continue
		}
		found, err := w.matches(ctx, e)
		if err != nil {
			return err
		}
		if found.failed && !strings.HasPrefix(w.doc.LastError, filterFails) {
			s.logNote(ctx, s.noteWebhook(ctx, store, tenant, w.doc, found.reason, false))
		}
		if found.reason != "" {
			continue
		}
		// With the time, a webhook gets an event that a removed one of its name has got, too.
		hash := sha256.Sum256([]byte(w.doc.Name + "\x00" + addedAt(w.doc) + "\x00" + e.Source() + "\x00" + e.ID()))
		err = s.queue.DeliverWebhook(ctx, jobs.Delivery{
			Tenant: tenant, Webhook: w.doc.Name, ID: "msg_" + hex.EncodeToString(hash[:16]), For: addedAt(w.doc),
			Event: e.Event,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noteWebhook records as a webhook's LastError why it has not got an event, and whether its target is gone. It does
// nothing if the webhook was removed, even if there is another one with its name.
func (s *Service) noteWebhook(
	ctx context.Context, store *jobs.Automations, tenant string, w schemas.Webhook, problem string, gone bool,
) error {
	return update(ctx, store, key{kindWebhook, tenant, w.Name}, func(doc *schemas.Webhook) bool {
		if addedAt(*doc) != addedAt(w) {
			return false
		}
		changed := setError(&doc.LastError, problem) || gone
		doc.Gone = doc.Gone || gone
		return changed
	})
}

// addedAt returns the time at which a webhook was added. It distinguishes webhooks that had the same name at different
// times.
func addedAt(doc schemas.Webhook) string { return doc.CreatedAt.UTC().Format(time.RFC3339Nano) }

// isFor reports whether a delivery is for this webhook, and not for a removed one that had its name. Earlier versions
// stored deliveries without the time.
func isFor(d jobs.Delivery, doc schemas.Webhook) bool { return d.For == "" || d.For == addedAt(doc) }

// send makes one try of a delivery. It drops a delivery whose webhook was removed or whose target is gone.
func (s *Service) send(ctx context.Context, store *jobs.Automations, c *cache, d jobs.Delivery) error {
	w, ok := c.webhook(d.Tenant, d.Webhook)
	if !ok || !isFor(d, w.doc) {
		if err := awaitLatest(ctx, store, c); err != nil { // the webhook may be newer than the cache
			return err
		}
		w, ok = c.webhook(d.Tenant, d.Webhook)
	}
	if !ok || !isFor(d, w.doc) || w.doc.Gone {
		return nil
	}
	if !c.beginRequest(d.Tenant, d.Webhook) {
		return &jobs.RetryError{After: busyDelay, Busy: true}
	}
	defer c.endRequest(d.Tenant, d.Webhook)
	problem, after, gone := s.post(ctx, w.doc, d)
	if problem == "" {
		s.queue.CountAutomation(ctx, kindWebhook, outcomeDone)
		return nil
	}
	s.queue.CountAutomation(ctx, kindWebhook, outcomeFailed)
	s.log.WarnContext(ctx, "webhook not delivered", "tenant", d.Tenant, "webhook", d.Webhook, "delivery", d.ID,
		"reason", problem)
	if err := s.noteWebhook(ctx, store, d.Tenant, w.doc, problem, gone); err != nil || gone {
		return err
	}
	now, err := s.now(ctx, store)
	if err != nil {
		return err
	}
	// Unless the target asks for more, each delay is half of the time since the event was stored, or since the
	// delivery's turn came.
	return &jobs.RetryError{After: min(max(minRetry, now.Sub(d.Since)/2, after), maxRetry)}
}

// post sends a delivery. problem is empty if the target has accepted it, and never has the secret. after is
// how long the target asks to wait before the next try. gone reports that the target wants no more deliveries.
func (s *Service) post(
	ctx context.Context, doc schemas.Webhook, d jobs.Delivery,
) (problem string, after time.Duration, gone bool) {
	body, err := d.Event.MarshalJSON()
	if err != nil {
		return "the event cannot be encoded", 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, doc.URL, bytes.NewReader(body))
	if err != nil {
		return "the URL is not valid", 0, false
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/cloudevents+json; charset=utf-8")
	req.Header.Set("User-Agent", "codefleet")
	req.Header.Set("Webhook-Id", d.ID)
	req.Header.Set("Webhook-Timestamp", at)
	req.Header.Set("Webhook-Signature", sign(doc.Secret, d.ID, at, body))
	resp, err := s.sender.Do(req)
	if err != nil {
		return sendProblem(err), 0, false
	}
	defer closeBody(resp)
	switch {
	case resp.StatusCode/100 == 2:
		return "", 0, false
	case resp.StatusCode == http.StatusGone:
		return "the target is gone (410)", 0, true
	case resp.StatusCode/100 == 3:
		return fmt.Sprintf("the target responded with a redirect (%d), which the fleet does not follow",
			resp.StatusCode), 0, false
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		after = time.Duration(min(seconds, int(maxRetry/time.Second))) * time.Second
	}
	return fmt.Sprintf("the target responded with the status %d", resp.StatusCode), after, false
}

// sign returns the signature that Standard Webhooks specifies.
func sign(secret, id, at string, body []byte) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, at, body) // never fails
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
