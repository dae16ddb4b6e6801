{{- define "drumlin.name" -}}
{{- printf "%s-drumlin" .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- end }}

{{- define "drumlin.coordinator" -}}
{{ include "drumlin.name" . }}-coordinator
{{- end }}

{{- define "drumlin.node" -}}
{{ include "drumlin.name" . }}-node
{{- end }}

{{- define "drumlin.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/name: drumlin
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* What does not change in the life of a release, so it can select pods: call with (dict "root" . "part" "node"). */}}
{{- define "drumlin.selector" -}}
app.kubernetes.io/name: drumlin
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "drumlin.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "drumlin.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "drumlin.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities:
  drop: [ALL]
{{- end }}

{{/* Whether object storage has a certificate of a private authority, which coordinators and nodes must know. */}}
{{- define "drumlin.s3Authority" -}}
{{- if and .Values.store.uri .Values.s3.ca.existingSecret }}yes{{ end -}}
{{- end }}

{{- define "drumlin.s3AuthorityEnv" -}}
- name: AWS_CA_BUNDLE
  value: /run/s3-ca/{{ .Values.s3.ca.key }}
{{- end }}

{{- define "drumlin.s3AuthorityMount" -}}
- {name: s3-ca, mountPath: /run/s3-ca, readOnly: true}
{{- end }}

{{- define "drumlin.s3AuthorityVolume" -}}
- name: s3-ca
  secret:
    secretName: {{ .Values.s3.ca.existingSecret }}
    items: [{key: {{ .Values.s3.ca.key }}, path: {{ .Values.s3.ca.key }}}]
{{- end }}

{{/* Object storage and Kafka, for coordinators. Nodes need neither. */}}
{{- define "drumlin.connections" -}}
{{- if .Values.store.uri }}
{{- with .Values.s3.endpoint }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- with .Values.s3.region }}
- name: AWS_REGION
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- with .Values.kafka.events }}
- name: DRUMLIN_EVENTS
  value: {{ . | quote }}
{{- end }}
{{- if .Values.kafka.existingSecret }}
- name: DRUMLIN_EVENTS_CONFIG
  value: /run/kafka/{{ .Values.kafka.configKey }}
{{- end }}
{{- end }}

{{- define "drumlin.credentials" -}}
{{- if and .Values.store.uri .Values.s3.existingSecret }}
envFrom:
  - secretRef:
      name: {{ .Values.s3.existingSecret }}
{{- end }}
{{- end }}

{{/* What must be named before anything can start. */}}
{{- define "drumlin.check" -}}
{{- $_ := required "engine.existingSecret: name the secret with the address of Redis (docs/how-to/deploy.md)." .Values.engine.existingSecret -}}
{{- $_ := required "tokens.existingSecret: name the secret with the nodes' join token (docs/how-to/deploy.md)." .Values.tokens.existingSecret -}}
{{- $_ := required "tls.existingSecret: name the secret with the coordinators' certificate (docs/how-to/deploy.md)." .Values.tls.existingSecret -}}
{{- end }}
