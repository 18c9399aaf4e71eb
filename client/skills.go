package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Types for skills. Package schemas documents their fields.
type (
	// Skill describes a skill: a program or instructions, saved under a name.
	Skill = schemas.Skill
	// SkillContent is a skill with its files.
	SkillContent = schemas.SkillContent
	// SkillDraft is a skill to save.
	SkillDraft = schemas.SkillDraft
	// SavedSkill is a skill that was saved, with its smoke run.
	SavedSkill = schemas.SavedSkill
	// SmokeRun says how the program of a skill ran before it was saved.
	SmokeRun = schemas.SmokeRun
	// SkillVersion is a kept version of a skill.
	SkillVersion = schemas.SkillVersion
)

// smokeWait is how long the fleet may take for a smoke run.
const smokeWait = 2 * time.Minute

// Skills returns the skills of the caller's tenant, and those that all tenants share, sorted by name. Over NATS, all
// methods for skills fail with the code "http_only".
func (c *Client) Skills(ctx context.Context) ([]Skill, error) {
	return get[[]Skill](ctx, c, nil, "skills")
}

// Skill returns a skill with its files. Version 0 selects the newest. For an unknown skill or version the error has the
// code "unknown_skill".
func (c *Client) Skill(ctx context.Context, name string, version int) (SkillContent, error) {
	return get[SkillContent](ctx, c, versionQuery(version), "skills", name)
}

// SkillVersions returns the kept versions of a skill, the newest first.
func (c *Client) SkillVersions(ctx context.Context, name string) ([]SkillVersion, error) {
	return get[[]SkillVersion](ctx, c, nil, "skills", name, "versions")
}

// SaveSkill saves a skill. The fleet first imports the skill's program in a box, and calls its function run if the
// draft has inputs or run needs none: if that fails, the error has the code "skill_failed", and nothing is saved. If
// the name is taken, or d.Base is not the newest version, the code is "skill_conflict". Sending the same draft again is
// harmless: if it was saved already, the response is that version.
func (c *Client) SaveSkill(ctx context.Context, name string, d SkillDraft) (SavedSkill, error) {
	conn, err := c.overHTTP()
	if err != nil {
		return SavedSkill{}, err
	}
	body, err := json.Marshal(d)
	if err != nil {
		return SavedSkill{}, fmt.Errorf("encode skill: %w", err)
	}
	return request[SavedSkill](ctx, conn, httpRequest{
		method: http.MethodPut, path: []string{"v1", "skills", name}, header: jsonHeader(), body: body, wait: smokeWait,
	})
}

// RemoveSkill removes a skill with all its versions. If version is not 0 and not the newest version, nothing is removed
// and the error has the code "skill_conflict". The request is not retried.
func (c *Client) RemoveSkill(ctx context.Context, name string, version int) error {
	conn, err := c.overHTTP()
	if err != nil {
		return err
	}
	return conn.do(ctx, httpRequest{
		method: http.MethodDelete, path: []string{"v1", "skills", name}, query: versionQuery(version), once: true,
	}, responseTimeout, decoder(nil))
}

func versionQuery(version int) url.Values {
	if version == 0 {
		return nil
	}
	return url.Values{"version": {strconv.Itoa(version)}}
}
