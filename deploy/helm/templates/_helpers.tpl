{{- define "codefleet.labels" -}}
app.kubernetes.io/name: codefleet
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- /* The metadata of pods. The checksum restarts them when the settings change. */ -}}
{{- define "codefleet.podMetadata" -}}
labels:
  {{- include "codefleet.labels" . | nindent 2 }}
annotations:
  checksum/config: {{ toYaml .root.Values.config | sha256sum }}
{{- end }}

{{- /* What all containers share. */ -}}
{{- define "codefleet.container" -}}
image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- end }}

{{- define "codefleet.env" -}}
{{- range $variable, $key := dict "CODEFLEET_NATS_PASSWORD" "NATS_PASSWORD" "CODEFLEET_S3_ACCESS_KEY" "S3_ACCESS_KEY" "CODEFLEET_S3_SECRET_KEY" "S3_SECRET_KEY" }}
- name: {{ $variable }}
  valueFrom: {secretKeyRef: {name: {{ $.root.Values.secret }}, key: {{ $key }}}}
{{- end }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: CODEFLEET_DATA # differs among workers of a host, which share control groups
  value: /var/lib/codefleet/$(POD_NAME)
{{- end }}

{{- define "codefleet.mounts" -}}
- {name: config, mountPath: /etc/codefleet/config.yaml, subPath: config.yaml, readOnly: true}
- {name: secrets, mountPath: /etc/codefleet/secrets, readOnly: true}
- {name: data, mountPath: /var/lib/codefleet}
{{- end }}

{{- define "codefleet.volumes" -}}
- name: config
  configMap: {name: {{ .root.Release.Name }}-config}
- name: secrets
  secret: {secretName: {{ .root.Values.secret }}, defaultMode: 0440}
- name: data
  emptyDir: {}
{{- end }}

{{- define "codefleet.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The names under which clients reach a Service, and the hosts of the values. */ -}}
{{- define "codefleet.hosts" -}}
{{- $name := printf "%s-%s" .root.Release.Name .part -}}
{{- $in := printf "%s.%s" $name .root.Release.Namespace -}}
{{ $name }},{{ $in }},{{ $in }}.svc,{{ $in }}.svc.cluster.local
{{- range .hosts }},{{ . }}{{ end }}
{{- end }}
