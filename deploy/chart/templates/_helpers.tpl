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

{{/* Which setting is in which key of the Secret, for the values in use. `secrets.env` adds to them. */}}
{{- define "lucius.secretSettings" -}}
LUCIUS_CALLBACK_KEYS: callback-keys
LUCIUS_WEBHOOK_SECRET: webhook-secret
{{- if not .Values.storage.accountUrl }}
LUCIUS_TABLE_CONNECTION: table-connection
{{- end }}
{{- if not .Values.workspace.accountUrl }}
LUCIUS_BLOB_CONNECTION: blob-connection
{{- end }}
{{- if and (eq .Values.bus.backend "servicebus") (not .Values.bus.namespace) }}
LUCIUS_SERVICEBUS_CONNECTION: servicebus-connection
{{- end }}
{{- if and (eq .Values.config.source "appconfig") (not .Values.config.endpoint) }}
LUCIUS_APPCONFIG_CONNECTION: appconfig-connection
{{- end }}
{{- if .Values.temporal.enabled }}
LUCIUS_INVOKER_SECRET: invoker-secret
{{- if .Values.temporal.apiKey }}
LUCIUS_TEMPORAL_API_KEY: temporal-api-key
{{- end }}
{{- end }}
{{- if and (eq .Values.bus.backend "nats") (not .Values.bus.natsUrl) }}
LUCIUS_NATS_URL: nats-url
{{- end }}
{{- end }}

{{/* Every secret setting, and the pods that read it: generated from the settings of the product. */}}
{{- define "lucius.readers" -}}
{{ .Files.Get "secrets.yaml" }}
{{- end }}

{{/* The settings that a pod reads from the Secret: root, kind (what it runs), own (those of a service alone).
     One that is no secret by itself goes to the control plane, and the URL of NATS to all that speak to it. */}}
{{- define "lucius.read" -}}
{{- $kind := .kind }}
{{- $readers := include "lucius.readers" .root | fromYaml }}
{{- $_ := set $readers "LUCIUS_NATS_URL" $readers.LUCIUS_NATS_PASSWORD }}
{{- if hasKey .root.Values.settings "LUCIUS_SERVICE_RECORDS_TABLE" }}
{{- $_ := set $readers "LUCIUS_TABLE_CONNECTION" (append $readers.LUCIUS_TABLE_CONNECTION "service") }}
{{- end }}
{{- $found := dict }}
{{- range $name, $key := merge (dict) .root.Values.secrets.env (include "lucius.secretSettings" .root | fromYaml) }}
{{- $pods := ternary (get $readers $name) $readers.LUCIUS_CALLBACK_KEYS (hasKey $readers $name) }}
{{- if has $kind $pods }}{{ $_ := set $found $name $key }}{{ end }}
{{- end }}
{{- toYaml (merge $found (.own | default dict)) }}
{{- end }}

{{/* Of these, the secrets: they are files. */}}
{{- define "lucius.files" -}}
{{- $readers := include "lucius.readers" .root | fromYaml }}
{{- $files := dict }}
{{- range $name, $key := include "lucius.read" . | fromYaml }}
{{- if hasKey $readers $name }}{{ $_ := set $files $name $key }}{{ end }}
{{- end }}
{{- toYaml $files }}
{{- end }}

{{/* Settings that name a file, and the key of the Secret that this file is: of the pods that speak to Temporal. */}}
{{- define "lucius.paths" -}}
{{- if and .root.Values.temporal.enabled (has .kind (list "orchestrator" "invoker" "worker")) }}
{{- if .root.Values.temporal.ca }}
LUCIUS_TEMPORAL_CA: temporal-ca
{{- end }}
{{- if .root.Values.temporal.certificate }}
LUCIUS_TEMPORAL_CERTIFICATE: temporal-certificate
{{- end }}
{{- end }}
{{- end }}

{{/* Every key that the Secret must have, by the settings in use. */}}
{{- define "lucius.secretKeys" -}}
{{- $keys := merge (dict) .Values.secrets.env (include "lucius.secretSettings" . | fromYaml) (include "lucius.paths" (dict "root" . "kind" "invoker") | fromYaml) -}}
{{- $found := values $keys -}}
{{- range .Values.services }}{{ $found = concat $found (values (.secrets | default dict)) }}{{ end -}}
{{ $found | uniq | sortAlpha | toJson }}
{{- end }}

{{/* The variables of a container that name secrets. */}}
{{- define "lucius.env" -}}
{{- $files := include "lucius.files" . | fromYaml }}
{{- range $name, $key := $files }}
- {name: {{ $name }}_FILE, value: /run/secrets/lucius/{{ $key }}}
{{- end }}
{{- range $name, $key := include "lucius.paths" . | fromYaml }}
- {name: {{ $name }}, value: /run/secrets/lucius/{{ $key }}}
{{- end }}
{{- range $name, $key := include "lucius.read" . | fromYaml }}
{{- if not (hasKey $files $name) }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef: {name: {{ include "lucius.secret" $.root }}, key: {{ $key }}}
{{- end }}
{{- end }}
{{- end }}

{{/* A pod that runs one verb: root, component, kind, own, account, args, resources, port, identity, and probes or grace. */}}
{{- define "lucius.pod" -}}
{{- $control := not (has .kind (list "service" "worker")) -}}
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
        {{- if $control }}
        {{- range $name, $value := include "lucius.controlSettings" .root | fromYaml }}
        - {name: {{ $name }}, value: {{ $value | quote }}}
        {{- end }}
        {{- end }}
        {{- if not $control }}
        - {name: LUCIUS_STORAGE_BACKEND, value: memory} # it has no ledger
        {{- end }}
        {{- if eq .kind "worker" }}
        - {name: LUCIUS_BUS_BACKEND, value: memory} # and no bus
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
        {{- if merge (include "lucius.files" . | fromYaml) (include "lucius.paths" . | fromYaml) }}
        - {name: secrets, mountPath: /run/secrets/lucius, readOnly: true}
        {{- end }}
        {{- if and $control .root.Values.config.protocols }}
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
    {{- if and $control .root.Values.config.protocols }}
    - name: protocols
      configMap: {name: {{ include "lucius.name" .root }}-protocols}
    {{- end }}
{{- end }}

{{/* What a service may use. With `processes`, the limits are those of all its processes at their own limit. */}}
{{- define "lucius.serviceResources" -}}
{{- $given := .service.resources | default .root.Values.serviceResources }}
{{- if .service.processes }}
{{- $memory := add 512 (mul .service.processes .service.processMemoryMiB) }}
{{- $given = dict "requests" $given.requests "limits" (dict "cpu" (toString .service.processes) "memory" (printf "%dMi" $memory)) }}
{{- end }}
{{- toYaml $given }}
{{- end }}

{{/* How long Kubernetes waits before SIGKILL: the drain, ten seconds to close, and five to spare. */}}
{{- define "lucius.grace" -}}
{{ add (int .Values.drainSeconds) 15 }}
{{- end }}
