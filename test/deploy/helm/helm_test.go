// Package helm_test renders the chart of deploy/helm, and checks the result against the types of Kubernetes and KEDA.
// It is a module of its own, because only this test needs them.
package helm_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const chartDir = "../../../deploy/helm"

type values = map[string]any

// objects are the rendered objects, by kind and name.
type objects map[string]any

// render renders the chart as the release "fleet" in the namespace "prod", and decodes each object strictly.
func render(t *testing.T, set values) (objects, error) {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "fleet", Namespace: "prod", Revision: 1, IsInstall: true}
	merged, err := chartutil.ToRenderValues(chart, set, release, chartutil.DefaultCapabilities) // checks the schema
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, merged)
	if err != nil {
		t.Fatal(err)
	}
	found := objects{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, doc := range strings.Split(files[name], "\n---") {
			if strings.TrimSpace(strings.TrimPrefix(doc, "---")) != "" && !strings.HasSuffix(name, ".tpl") {
				found.add(t, name, doc)
			}
		}
	}
	return found, nil
}

func (o objects) add(t *testing.T, file, doc string) {
	t.Helper()
	var head struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
	}
	if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
		t.Fatalf("%s: %v:\n%s", file, err, doc)
	}
	var v any
	switch head.APIVersion + " " + head.Kind {
	case "apps/v1 Deployment":
		v = &appsv1.Deployment{}
	case "v1 Service":
		v = &corev1.Service{}
	case "v1 ConfigMap":
		v = &corev1.ConfigMap{}
	case "policy/v1 PodDisruptionBudget":
		v = &policyv1.PodDisruptionBudget{}
	case "keda.sh/v1alpha1 ScaledObject":
		v = &kedav1alpha1.ScaledObject{}
	case "keda.sh/v1alpha1 TriggerAuthentication":
		v = &kedav1alpha1.TriggerAuthentication{}
	default:
		t.Fatalf("%s has an object of %s %s, which this test does not know", file, head.APIVersion, head.Kind)
	}
	if err := yaml.UnmarshalStrict([]byte(doc), v); err != nil {
		t.Errorf("%s: %s %s does not match its schema: %v", file, head.Kind, head.Metadata.Name, err)
	}
	o[head.Kind+" "+head.Metadata.Name] = v
}

func get[T any](t *testing.T, o objects, name string) *T {
	t.Helper()
	v, ok := o[name].(*T)
	if !ok {
		t.Fatalf("no %s among %v", name, slices.Sorted(maps.Keys(o)))
	}
	return v
}

func TestLint(t *testing.T) {
	for _, m := range lint.All(chartDir, values{}, "prod", true).Messages {
		if m.Severity > support.InfoSev {
			t.Errorf("%v", m)
		}
	}
}

// TestParts checks that the parts fit together: selectors, ports, secrets, hosts and the settings.
func TestParts(t *testing.T) {
	o, err := render(t, values{"bridge": values{"hosts": []any{"mcp.example.org"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ConfigMap fleet-config", "Deployment fleet-bridge", "Deployment fleet-ingest", "Deployment fleet-worker",
		"PodDisruptionBudget fleet-bridge", "PodDisruptionBudget fleet-ingest", "Service fleet-bridge",
		"Service fleet-ingest",
	}
	if got := slices.Sorted(maps.Keys(o)); !slices.Equal(got, want) {
		t.Fatalf("objects = %q, want %q", got, want)
	}
	for _, part := range []string{"ingest", "bridge", "worker"} {
		d := get[appsv1.Deployment](t, o, "Deployment fleet-"+part)
		labels, container := d.Spec.Template.Labels, d.Spec.Template.Spec.Containers[0]
		for key, value := range d.Spec.Selector.MatchLabels {
			if labels[key] != value {
				t.Errorf("%s: pods have the label %s=%q, want %q as selected", part, key, labels[key], value)
			}
		}
		if *d.Spec.Replicas != 2 || container.Image != "codefleet:latest" {
			t.Errorf("%s: %d replicas of %s, want 2 of codefleet:latest", part, *d.Spec.Replicas, container.Image)
		}
		if c := container.SecurityContext; c.Privileged != nil {
			t.Errorf("%s: privileged is set, want single capabilities", part)
		}
		volumes := map[string]bool{}
		for _, v := range d.Spec.Template.Spec.Volumes {
			volumes[v.Name] = true
		}
		for _, m := range container.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s mounts the volume %s, which it does not have", part, m.Name)
			}
		}
		if part == "worker" {
			continue
		}
		s := get[corev1.Service](t, o, "Service fleet-"+part)
		if len(s.Spec.Selector) != 3 || s.Spec.Selector["app.kubernetes.io/component"] != part ||
			s.Spec.Ports[0].Port != container.Ports[0].ContainerPort {
			t.Errorf("%s: the Service selects %v, port %d", part, s.Spec.Selector, s.Spec.Ports[0].Port)
		}
		if hosts := env(container, "CODEFLEET_HTTP_ALLOWED_HOSTS"); !strings.Contains(hosts, "fleet-"+part+".prod.svc,") {
			t.Errorf("%s accepts the hosts %q, want those of its Service", part, hosts)
		}
	}
	bridge := get[appsv1.Deployment](t, o, "Deployment fleet-bridge").Spec.Template.Spec.Containers[0]
	hosts := env(bridge, "CODEFLEET_HTTP_ALLOWED_HOSTS")
	if !strings.HasSuffix(hosts, ".svc.cluster.local,mcp.example.org") {
		t.Errorf("the bridge accepts the hosts %q, want the additional one, too", hosts)
	}
	w := get[appsv1.Deployment](t, o, "Deployment fleet-worker").Spec.Template.Spec
	if *w.TerminationGracePeriodSeconds != 45 || env(w.Containers[0], "CODEFLEET_WORKER_DRAIN") != "30s" {
		t.Errorf("the worker drains %s within %d s, want 30s within 45 s", env(w.Containers[0], "CODEFLEET_WORKER_DRAIN"),
			*w.TerminationGracePeriodSeconds)
	}
	config := get[corev1.ConfigMap](t, o, "ConfigMap fleet-config").Data["config.yaml"]
	var settings values
	if err := yaml.Unmarshal([]byte(config), &settings); err != nil || settings["nats"] == nil {
		t.Errorf("config.yaml = %s, %v, want the settings", config, err)
	}
}

func env(c corev1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// TestAutoscaling checks that KEDA reads the fleet's backlog, and that the chart leaves the number of workers to it.
func TestAutoscaling(t *testing.T) {
	o, err := render(t, values{
		"autoscaling": values{"enabled": true, "pool": "gpu", "min": 0, "max": 7}, "worker": values{"slots": 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := get[appsv1.Deployment](t, o, "Deployment fleet-worker"); d.Spec.Replicas != nil {
		t.Errorf("the worker's Deployment has %d replicas, want none set", *d.Spec.Replicas)
	}
	s := get[kedav1alpha1.ScaledObject](t, o, "ScaledObject fleet-worker")
	if s.Spec.ScaleTargetRef.Name != "fleet-worker" || *s.Spec.MinReplicaCount != 0 || *s.Spec.MaxReplicaCount != 7 {
		t.Errorf("the ScaledObject scales %s from %d to %d", s.Spec.ScaleTargetRef.Name, *s.Spec.MinReplicaCount,
			*s.Spec.MaxReplicaCount)
	}
	trigger := s.Spec.Triggers[0]
	if got, want := trigger.Metadata, map[string]string{
		"url":           "http://fleet-ingest.prod.svc:8787/v1/fleet/backlog?pool=gpu&within=60s",
		"valueLocation": "slots", "targetValue": "4", "authMode": "bearer",
	}; trigger.Type != "metrics-api" || !maps.Equal(got, want) {
		t.Errorf("trigger %s = %v, want metrics-api with %v", trigger.Type, got, want)
	}
	auth := get[kedav1alpha1.TriggerAuthentication](t, o, "TriggerAuthentication "+trigger.AuthenticationRef.Name)
	if ref := auth.Spec.SecretTargetRef[0]; ref.Parameter != "token" || ref.Key != "operator.token" {
		t.Errorf("the token is %+v, want that of the operator", ref)
	}
}

// TestKVM checks that the device plugin gives workers /dev/kvm, for microsandbox.
func TestKVM(t *testing.T) {
	o, err := render(t, values{"worker": values{"kvm": values{"enabled": true}}})
	if err != nil {
		t.Fatal(err)
	}
	c := get[appsv1.Deployment](t, o, "Deployment fleet-worker").Spec.Template.Spec.Containers[0]
	if n := c.Resources.Limits["devices.kubevirt.io/kvm"]; n.Value() != 1 || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("limits = %v, want one KVM device and the memory", c.Resources.Limits)
	}
	if got := env(c, "CODEFLEET_EXECUTION_SANDBOX_TYPE"); got != "microsandbox" {
		t.Errorf("sandbox = %q, want microsandbox", got)
	}
}

func TestBadValues(t *testing.T) {
	for want, set := range map[string]values{
		"slots":      {"worker": values{"slots": 0}},
		"replica":    {"ingest": values{"replica": 3}},
		"drain":      {"worker": values{"drain": "a minute"}},
		"within":     {"autoscaling": values{"within": "60"}},
		"nats":       {"config": values{"nats": values{"password": "secret"}}},
		"secret":     {"secret": ""},
		"pullPolicy": {"image": values{"pullPolicy": "Sometimes"}},
	} {
		if _, err := render(t, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("values %v: %v, want an error that names %s", set, err, want)
		}
	}
}
