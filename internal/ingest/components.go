package ingest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/mirror"
	"github.com/codefleet/codefleet/schemas"
)

// schemaFiles are the components that are files in schemas/.
var schemaFiles = map[string]string{
	"Task": schemas.TaskV1, "Record": schemas.RecordV1, "Result": schemas.ResultV1, "Progress": schemas.ProgressV1,
}

// fixedSchemas are the components that are neither files nor Go types.
var fixedSchemas = map[string]string{
	"Text":   `{"type":"string"}`,
	"Bytes":  `{}`,
	"Object": `{"type":"object"}`,
	"Health": `{"type":"object","properties":{"status":{"type":"string"}}}`,
	"Form":   `{"type":"object","additionalProperties":true}`,
	"FormRequest": `{"type":"object","required":["form"],"properties":{
		"form":{"$ref":"#/components/schemas/Form"},"document":{"type":"string"},
		"values":{"type":"object","additionalProperties":true}}}`,
	"FilledForm": `{"type":"object","required":["values","sources","problems"],"properties":{
		"values":{"type":"object","additionalProperties":true},
		"sources":{"type":"object","additionalProperties":{"type":"object","required":["by"],"properties":{
			"by":{"type":"string"},"line":{"type":"integer"},"quote":{"type":"string"}}}},
		"problems":{"type":"array","items":{"type":"object","required":["field","message"],"properties":{
			"field":{"type":"string"},"message":{"type":"string"},"missing":{"type":"boolean"}}}},
		"warnings":{"type":"array","items":{"type":"string"}}}}`,
	"CloudEvent": `{"type":"object","required":["specversion","id","source","type"],"properties":{
		"specversion":{"const":"1.0"},"id":{"type":"string"},"source":{"type":"string"},
		"type":{"const":"codefleet.task.v1"},"data":{"$ref":"#/components/schemas/Task"}}}`,
	"Checkpoint": `{"type":["object","null"],"properties":{"id":{"type":"integer","minimum":1},
		"last_task":{"type":"string"},"timestamp":{"type":"string","format":"date-time"}}}`,
	"AnyEvent": `{"type":"object","required":["specversion","id","source","type"],"properties":{
		"specversion":{"const":"1.0"},"id":{"type":"string"},"source":{"type":"string"},
		"type":{"type":"string","minLength":1},"data":{}}}`,
	"CloudEventBatch": `{"type":"array","items":{"anyOf":[
		{"$ref":"#/components/schemas/CloudEvent"},{"$ref":"#/components/schemas/AnyEvent"}]}}`,
	"WorkflowRun": `{"type":"object","required":["run_id","tenant","name","status","workspace","created_at","steps"],
		"properties":{"run_id":{"type":"string"},"tenant":{"type":"string"},"name":{"type":"string"},
		"status":{"enum":["running","waiting","succeeded","failed","cancelled"]},"workspace":{"type":"string"},
		"created_at":{"type":"string","format":"date-time"},"ended_at":{"type":"string","format":"date-time"},
		"deadline":{"type":"string","format":"date-time"},"outputs":{"type":"object"},"inputs":{"type":"object"},
		"workflow":{"type":"object"},"error":{"type":"object","properties":{"code":{"type":"string"},
		"message":{"type":"string"},"step":{"type":"string"}}},
		"steps":{"type":"array","items":{"$ref":"#/components/schemas/StepRun"}}}}`,
	"StepRun": `{"type":"object","required":["status"],"properties":{"id":{"type":"string"},
		"status":{"enum":["pending","running","waiting","succeeded","failed","skipped","cancelled"]},
		"attempt":{"type":"integer"},"task_id":{"type":"string"},"run_id":{"type":"string"},
		"message":{"type":"string"},"result":{},
		"items":{"type":"array","items":{"$ref":"#/components/schemas/StepRun"}}}}`,
	"BatchItems": `{"type":"array","items":{"$ref":"#/components/schemas/BatchItem"}}`,
}

// object is a JSON object in the document.
type object = map[string]any

// typeSchemas returns the components that are Go types.
func typeSchemas() (map[string]*jsonschema.Schema, error) {
	b := &schemaBuilder{all: map[string]*jsonschema.Schema{}}
	addSchema[apierror.Error](b, "Error")
	addSchema[schemas.PendingApproval](b, "PendingApproval")
	addSchema[schemas.Decision](b, "Decision")
	addSchema[schemas.AuditRecord](b, "AuditRecord")
	addSchema[schemas.DeadTask](b, "DeadTask")
	addSchema[schemas.DeadLetter](b, "DeadLetter")
	addSchema[schemas.Redriven](b, "Redriven")
	addSchema[schemas.Fleet](b, "Fleet")
	addSchema[schemas.Demand](b, "Demand")
	addSchema[schemas.Why](b, "Why")
	addSchema[schemas.Pause](b, "Pause")
	addSchema[schemas.TenantLimits](b, "TenantLimits")
	addSchema[schemas.TenantLimitsInfo](b, "TenantLimitsInfo")
	addSchema[schemas.TenantUsage](b, "TenantUsage")
	addSchema[pauseIn](b, "PauseOptions")
	addSchema[resumed](b, "Resumed")
	addSchema[schemas.Worker](b, "Worker")
	addSchema[schemas.Tenant](b, "Tenant")
	addSchema[schemas.Token](b, "Token")
	addSchema[schemas.NewToken](b, "NewToken")
	addSchema[tokenIn](b, "TokenOptions")
	addSchema[schemas.Tool](b, "Tool")
	addSchema[schemas.ToolList](b, "ToolList")
	addSchema[schemas.ToolSearch](b, "ToolSearch")
	addSchema[schemas.Skill](b, "Skill")
	addSchema[schemas.SkillContent](b, "SkillContent")
	addSchema[schemas.SkillDraft](b, "SkillDraft")
	addSchema[schemas.SavedSkill](b, "SavedSkill")
	addSchema[schemas.SkillVersion](b, "SkillVersion")
	addSchema[schemas.Identity](b, "Identity")
	addSchema[registrationIn](b, "Registration")
	addSchema[toolAnswer](b, "ToolAnswer")
	addSchema[batchItem](b, "BatchItem")
	addSchema[schemas.ScheduleSpec](b, "ScheduleSpec")
	addSchema[schemas.Schedule](b, "Schedule")
	addSchema[schemas.TriggerSpec](b, "TriggerSpec")
	addSchema[schemas.Trigger](b, "Trigger")
	addSchema[schemas.TriggerTest](b, "TriggerTest")
	addSchema[schemas.AcceptedEvent](b, "AcceptedEvent")
	addSchema[PageLink](b, "PageLink")
	addSchema[schemas.WebhookSpec](b, "WebhookSpec")
	addSchema[schemas.Webhook](b, "Webhook")
	addSchema[schemas.WorkflowRequest](b, "WorkflowRequest")
	addSchema[schemas.WorkflowCheck](b, "WorkflowCheck")
	addSchema[schemas.WorkflowAnswer](b, "WorkflowAnswer")
	addSchema[schemas.WorkflowRerun](b, "WorkflowRerun")
	addSchema[schemas.Session](b, "Session")
	addSchema[schemas.SessionSummary](b, "SessionSummary")
	addSchema[resumption](b, "Resumption")
	addSchema[schemas.Commit](b, "Commit")
	addSchema[restoreIn](b, "RestoreOptions")
	addSchema[forkIn](b, "ForkOptions")
	addSchema[pinIn](b, "PinOptions")
	addSchema[archiveOptions](b, "ArchiveOptions")
	addSchema[schemas.CheckOptions](b, "CheckOptions")
	addSchema[schemas.CheckReport](b, "CheckReport")
	addSchema[schemas.RepairOptions](b, "RepairOptions")
	addSchema[schemas.RepairReport](b, "RepairReport")
	addSchema[savedState](b, "SavedState")
	addSchema[history.Info](b, "Workspace")
	addSchema[state.FileInfo](b, "File")
	addSchema[history.PathChange](b, "PathChange")
	addSchema[history.Pinned](b, "Pin")
	addSchema[mirror.Result](b, "MirrorReport")
	return b.all, b.err
}

type schemaBuilder struct {
	all map[string]*jsonschema.Schema
	err error // the first error
}

func addSchema[T any](b *schemaBuilder, name string) {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage]():    {},
		reflect.TypeFor[versionName]():        {Types: []string{"integer", "string"}},
		reflect.TypeFor[schemas.Checkpoint](): {Ref: "#/components/schemas/Checkpoint"},
		reflect.TypeFor[schemas.Record]():     {Ref: "#/components/schemas/Record"},
	}})
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("schema %s: %w", name, err)
	}
	b.all[name] = s
}

// schemaComponents returns all components of the document.
func schemaComponents() (object, error) {
	out := object{}
	for name, file := range schemaFiles {
		s, err := fileSchema(file)
		if err != nil {
			return nil, err
		}
		out[name] = s
	}
	types, err := typeSchemas()
	if err != nil {
		return nil, err
	}
	for name, s := range types {
		if out[name], err = openSchema(s); err != nil {
			return nil, err
		}
	}
	for name, text := range fixedSchemas {
		out[name] = json.RawMessage(text)
	}
	out["Submission"], err = submissionSchema()
	return out, err
}

// fileSchema returns a file in schemas/ as a component. It changes references to files into references to
// components.
func fileSchema(file string) (object, error) {
	data, err := schemas.Text(file)
	if err != nil {
		return nil, err
	}
	var doc object
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("schema %s: %w", file, err)
	}
	delete(doc, "$schema")
	delete(doc, "$id")
	walk(doc, func(o object) {
		ref, ok := o["$ref"].(string)
		if !ok {
			return
		}
		target, fragment, _ := strings.Cut(ref, "#")
		for name, f := range schemaFiles {
			if f == target || target == "" && f == file {
				o["$ref"] = "#/components/schemas/" + name + fragment
			}
		}
	})
	return doc, nil
}

// openSchema returns the schema of a Go type as JSON. It allows additional fields, because later versions may
// add some.
func openSchema(s *jsonschema.Schema) (object, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var doc object
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	walk(doc, func(o object) {
		if o["additionalProperties"] == false {
			delete(o, "additionalProperties")
		}
	})
	return doc, nil
}

// submissionSchema returns the schema of a task that also has the fields of its envelope.
func submissionSchema() (object, error) {
	doc, err := fileSchema(schemas.TaskV1)
	if err != nil {
		return nil, err
	}
	doc["title"] = "A task and its envelope"
	fields, ok := doc["properties"].(object)
	if !ok {
		return nil, fmt.Errorf("schema %s has no properties", schemas.TaskV1)
	}
	for _, name := range envelope {
		fields[name] = object{"type": "string"}
	}
	fields["expirytime"] = object{"type": "string", "format": "date-time"}
	fields["priority"] = object{"enum": []string{"high", "normal", "low"}}
	return doc, nil
}

// walk calls fn for each object of a JSON document.
func walk(v any, fn func(object)) {
	switch v := v.(type) {
	case object:
		fn(v)
		for _, child := range v {
			walk(child, fn)
		}
	case []any:
		for _, child := range v {
			walk(child, fn)
		}
	}
}
