{{- define "lucius.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "lucius.selector" -}}
app.kubernetes.io/name: lucius
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "lucius.labels" -}}
{{ include "lucius.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "lucius.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "lucius.secret" -}}
{{ .Values.secrets.existing | default (include "lucius.name" .) }}
{{- end }}

{{/* The URL of the API inside the cluster. */}}
{{- define "lucius.url" -}}
http://{{ include "lucius.name" . }}-orchestrator.{{ .Release.Namespace }}.svc:8700
{{- end }}

{{/* Connections that no identity serves: which setting is in which key of the Secret. */}}
{{- define "lucius.connections" -}}
{{- if not .Values.storage.accountUrl }}
LUCIUS_TABLE_CONNECTION: table-connection
{{- end }}
{{- if not .Values.workspace.accountUrl }}
LUCIUS_BLOB_CONNECTION: blob-connection
{{- end }}
{{- if and (eq .Values.bus.backend "servicebus") (not .Values.bus.namespace) }}
LUCIUS_SERVICEBUS_CONNECTION: servicebus-connection
{{- end }}
{{- end }}

{{/* What only the control plane may hold: who has the callback keys can speak for every service. */}}
{{- define "lucius.ownSecrets" -}}
LUCIUS_CALLBACK_KEYS: callback-keys
LUCIUS_WEBHOOK_SECRET: webhook-secret
{{- if and (eq .Values.config.source "appconfig") (not .Values.config.endpoint) }}
LUCIUS_APPCONFIG_CONNECTION: appconfig-connection
{{- end }}
{{- end }}

{{/* By which workers, orchestrators and invokers know each other, and Temporal knows them. */}}
{{- define "lucius.temporalSecrets" -}}
{{- if .Values.temporal.enabled }}
LUCIUS_INVOKER_SECRET: invoker-secret
{{- if .Values.temporal.apiKey }}
LUCIUS_TEMPORAL_API_KEY: temporal-api-key
{{- end }}
{{- end }}
{{- end }}

{{/* The secrets that a pod reads from files: root, control (the control plane), asks (it only asks the invoker). */}}
{{- define "lucius.files" -}}
{{- $files := dict }}
{{- if not .asks }}{{ $files = merge $files (include "lucius.connections" .root | fromYaml) }}{{ end }}
{{- if .control }}{{ $files = merge $files (include "lucius.ownSecrets" .root | fromYaml) }}{{ end }}
{{- if or .control .asks }}{{ $files = merge $files (include "lucius.temporalSecrets" .root | fromYaml) }}{{ end }}
{{- toYaml $files }}
{{- end }}

{{/* Settings that name a file, and the key of the Secret that this file is: of the pods that speak to Temporal. */}}
{{- define "lucius.paths" -}}
{{- if and .root.Values.temporal.enabled (or .control .asks) }}
{{- if .root.Values.temporal.ca }}
LUCIUS_TEMPORAL_CA: temporal-ca
{{- end }}
{{- if .root.Values.temporal.certificate }}
LUCIUS_TEMPORAL_CERTIFICATE: temporal-certificate
LUCIUS_TEMPORAL_PRIVATE_KEY_PATH: temporal-private-key
{{- end }}
{{- end }}
{{- end }}

{{/* Settings that cannot be read from a file: variables from keys of the Secret. */}}
{{- define "lucius.variables" -}}
{{- if and (eq .Values.bus.backend "nats") (not .Values.bus.natsUrl) }}
LUCIUS_NATS_URL: nats-url
{{- end }}
{{- with .Values.secrets.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Every key that the Secret must have, by the settings in use. */}}
{{- define "lucius.secretKeys" -}}
{{- $control := dict "root" . "control" true -}}
{{- $files := merge (include "lucius.files" $control | fromYaml) (include "lucius.paths" $control | fromYaml) -}}
{{ values (merge $files (include "lucius.variables" . | fromYaml)) | uniq | sortAlpha | toJson }}
{{- end }}

{{/* The variables of a container that name secrets. */}}
{{- define "lucius.env" -}}
{{- range $name, $key := include "lucius.files" . | fromYaml }}
- {name: {{ $name }}_FILE, value: /run/secrets/lucius/{{ $key }}}
{{- end }}
{{- range $name, $key := include "lucius.paths" . | fromYaml }}
- {name: {{ $name }}, value: /run/secrets/lucius/{{ $key }}}
{{- end }}
{{- range $name, $key := include "lucius.variables" .root | fromYaml }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef: {name: {{ include "lucius.secret" $.root }}, key: {{ $key }}}
{{- end }}
{{- end }}

{{/* A pod that runs one verb: root, component, account, control, args, resources, port, identity, and probes or grace. */}}
{{- define "lucius.pod" -}}
metadata:
  labels:
    {{- include "lucius.labels" . | nindent 4 }}
    {{- if .identity }}
    azure.workload.identity/use: "true"
    {{- end }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ printf "%s%s" (include "lucius.settings" .root) (include "lucius.controlSettings" .root) | sha256sum }}
spec:
  serviceAccountName: {{ .account }}
  automountServiceAccountToken: false
  enableServiceLinks: false # they are variables named after the release, which LUCIUS would warn about
  terminationGracePeriodSeconds: {{ .grace }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with .restart }}
  restartPolicy: {{ . }}
  {{- end }}
  {{- if .spread }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "lucius.selector" . | nindent 10 }}
  {{- end }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: lucius
      image: {{ .image | default (include "lucius.image" .root) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: {{ toJson .args }}
      envFrom:
        - configMapRef: {name: {{ include "lucius.name" .root }}}
      env:
        {{- if .control }}
        {{- range $name, $value := include "lucius.controlSettings" .root | fromYaml }}
        - {name: {{ $name }}, value: {{ $value | quote }}}
        {{- end }}
        {{- end }}
        {{- if .asks }}
        - {name: LUCIUS_STORAGE_BACKEND, value: memory} # it has neither a ledger nor a bus of its own
        - {name: LUCIUS_BUS_BACKEND, value: memory}
        {{- end }}
        {{- include "lucius.env" . | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        runAsNonRoot: true
        capabilities: {drop: [ALL]}
      resources: {{ toYaml .resources | nindent 8 }}
      {{- if .port }}
      ports:
        - {name: http, containerPort: {{ .port }}}
      startupProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 2
        failureThreshold: 30
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      {{- end }}
      {{- with .beforeStop }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ . }}}
      {{- end }}
      volumeMounts:
        - {name: data, mountPath: /var/lib/lucius}
        - {name: tmp, mountPath: /tmp}
        {{- if include "lucius.files" . | fromYaml }}
        - {name: secrets, mountPath: /run/secrets/lucius, readOnly: true}
        {{- end }}
        {{- if and .control .root.Values.config.protocols }}
        - {name: protocols, mountPath: /etc/lucius/protocols, readOnly: true}
        {{- end }}
  volumes:
    - name: data
      emptyDir: {sizeLimit: 256Mi}
    - name: tmp
      emptyDir: {sizeLimit: 1Gi}
    {{- with merge (include "lucius.files" . | fromYaml) (include "lucius.paths" . | fromYaml) }}
    - name: secrets
      secret:
        secretName: {{ include "lucius.secret" $.root }}
        defaultMode: 0440
        items:
          {{- range $key := values . | uniq | sortAlpha }}
          - {key: {{ $key }}, path: {{ $key }}}
          {{- end }}
    {{- end }}
    {{- if and .control .root.Values.config.protocols }}
    - name: protocols
      configMap: {name: {{ include "lucius.name" .root }}-protocols}
    {{- end }}
{{- end }}

{{/* How long Kubernetes waits before SIGKILL: the drain, ten seconds to close, and five to spare. */}}
{{- define "lucius.grace" -}}
{{ add (int .Values.drainSeconds) 15 }}
{{- end }}
