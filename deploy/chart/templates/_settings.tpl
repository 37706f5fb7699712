{{/* Settings of every process. */}}
{{- define "lucius.settings" -}}
LUCIUS_AUTH: {{ .Values.auth.mode }}
LUCIUS_BUS_BACKEND: {{ .Values.bus.backend }}
LUCIUS_DATA_DIR: /var/lib/lucius
LUCIUS_DRAIN_SECONDS: {{ .Values.drainSeconds | quote }}
LUCIUS_LANE_TOPOLOGY: {{ .Values.bus.topology }}
LUCIUS_LOG_FORMAT: json
LUCIUS_LOG_LEVEL: {{ .Values.logLevel }}
LUCIUS_STORAGE_BACKEND: {{ .Values.storage.backend }}
LUCIUS_WORKSPACE_URL: {{ .Values.workspace.url | quote }}
{{- with .Values.workspace.accountUrl }}
LUCIUS_BLOB_CONNECTION: {{ . | quote }}
{{- end }}
{{- with .Values.workspace.inputRoots }}
LUCIUS_INPUT_ROOTS: {{ join "," . | quote }}
{{- end }}
{{- with .Values.workspace.outputRoots }}
LUCIUS_OUTPUT_ROOTS: {{ join "," . | quote }}
{{- end }}
{{- if eq .Values.auth.mode "jwt" }}
LUCIUS_JWT_ISSUER: {{ .Values.auth.jwt.issuer | quote }}
LUCIUS_JWT_AUDIENCE: {{ .Values.auth.jwt.audience | quote }}
LUCIUS_JWT_JWKS_URL: {{ .Values.auth.jwt.jwksUrl | quote }}
{{- end }}
{{- with .Values.storage.accountUrl }}
LUCIUS_TABLE_CONNECTION: {{ . | quote }}
{{- end }}
{{- if and (eq .Values.bus.backend "servicebus") .Values.bus.namespace }}
LUCIUS_SERVICEBUS_CONNECTION: {{ .Values.bus.namespace | quote }}
{{- end }}
{{- if and (eq .Values.bus.backend "nats") .Values.bus.natsUrl }}
LUCIUS_NATS_URL: {{ .Values.bus.natsUrl | quote }}
{{- end }}
{{- if .Values.temporal.enabled }}
LUCIUS_TEMPORAL_ENABLED: "true"
LUCIUS_TEMPORAL_ADDRESS: {{ .Values.temporal.address | quote }}
LUCIUS_TEMPORAL_NAMESPACE: {{ .Values.temporal.namespace | quote }}
LUCIUS_TEMPORAL_TASK_QUEUE: {{ .Values.temporal.taskQueue | quote }}
LUCIUS_INVOKER_URL: {{ printf "http://%s-invoker.%s.svc:8710" (include "lucius.name" .) .Release.Namespace }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* Settings of orchestrator, reconciler and provisioning alone. */}}
{{- define "lucius.controlSettings" -}}
LUCIUS_CONFIG_SOURCE: {{ .Values.config.source }}
LUCIUS_PUBLIC_URL: {{ .Values.publicUrl | default (include "lucius.url" .) | quote }}
{{- if and (eq .Values.config.source "appconfig") .Values.config.endpoint }}
LUCIUS_APPCONFIG_CONNECTION: {{ .Values.config.endpoint | quote }}
{{- end }}
{{- if .Values.config.protocols }}
LUCIUS_PROTOCOLS: packaged,/etc/lucius/protocols
{{- end }}
{{- end }}

{{/* Values that contradict each other are refused with a sentence that says what to set. */}}
{{- define "lucius.check" -}}
{{- $v := .Values }}
{{- if not $v.image.repository }}
{{- fail "image.repository is empty: set it to the image that you built from deploy/Containerfile, such as REGISTRY/lucius" }}
{{- end }}
{{- if and $v.secrets.existing $v.secrets.create }}
{{- fail (printf "secrets.existing is %s and secrets.create is true: set one of them" $v.secrets.existing) }}
{{- end }}
{{- if not (or $v.secrets.existing $v.secrets.create) }}
{{- fail (printf "secrets.existing is empty: name a Secret with the keys %s (or, for a trial, set secrets.create=true and secrets.values)" (include "lucius.secretKeys" . | fromJsonArray | join ", ")) }}
{{- end }}
{{- if $v.secrets.create }}
{{- range include "lucius.secretKeys" . | fromJsonArray }}
{{- if not (get $v.secrets.values .) }}
{{- fail (printf "secrets.create is true and secrets.values.%s is empty: give it with --set-string secrets.values.%s=..." . .) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $v.orchestrator.autoscaling.enabled (not (kindIs "invalid" $v.orchestrator.replicas)) }}
{{- fail (printf "orchestrator.replicas is %v and orchestrator.autoscaling.enabled is true: leave replicas out, or set autoscaling.enabled=false" $v.orchestrator.replicas) }}
{{- end }}
{{- if gt (int $v.orchestrator.autoscaling.minReplicas) (int $v.orchestrator.autoscaling.maxReplicas) }}
{{- fail (printf "orchestrator.autoscaling.minReplicas is %v and maxReplicas is %v: set minReplicas to at most maxReplicas" $v.orchestrator.autoscaling.minReplicas $v.orchestrator.autoscaling.maxReplicas) }}
{{- end }}
{{- if eq $v.auth.mode "jwt" }}
{{- range $key := list "issuer" "audience" "jwksUrl" }}
{{- if not (get $v.auth.jwt $key) }}{{ fail (printf "auth.jwt.%s is empty and auth.mode is jwt: set it" $key) }}{{ end }}
{{- end }}
{{- end }}
{{- if and $v.temporal.enabled (not $v.temporal.address) }}
{{- fail "temporal.enabled is true and temporal.address is empty: set HOST:PORT of the frontend of the Temporal server" }}
{{- end }}
{{- if gt (int $v.worker.minReplicas) (int $v.worker.maxReplicas) }}
{{- fail (printf "worker.minReplicas is %v and maxReplicas is %v: set minReplicas to at most maxReplicas" $v.worker.minReplicas $v.worker.maxReplicas) }}
{{- end }}
{{- if and (eq $v.keda.trigger "servicebus") (ne $v.bus.backend "servicebus") }}
{{- fail (printf "keda.trigger is servicebus and bus.backend is %s: set keda.trigger=backlog" $v.bus.backend) }}
{{- end }}
{{- if and $v.ingress.enabled (not $v.ingress.host) }}
{{- fail "ingress.enabled is true and ingress.host is empty: set the name under which clients call" }}
{{- end }}
{{- if and $v.ingress.enabled $v.networkPolicy.enabled (not $v.networkPolicy.clients) }}
{{- fail "ingress.enabled is true and networkPolicy.clients is empty: nobody outside could call; name the namespace of the ingress controller in networkPolicy.clients" }}
{{- end }}
{{- range $name, $pods := include "lucius.readers" . | fromYaml }}
{{- if hasKey $v.settings $name }}
{{- fail (printf "settings.%s is a secret and would be stored in a ConfigMap: put it into the Secret, and its key into %s" $name (ternary "secrets.env" (printf "services.NAME.secrets.%s" $name) (gt (len $pods) 0))) }}
{{- end }}
{{- if and (hasKey $v.secrets.env $name) (not $pods) }}
{{- fail (printf "secrets.env.%s would reach pods that do not read it: set services.NAME.secrets.%s for the service that does" $name $name) }}
{{- end }}
{{- end }}
{{- range $name, $value := merge (dict "bus.natsUrl" $v.bus.natsUrl) (include "lucius.settings" . | fromYaml) (include "lucius.controlSettings" . | fromYaml) }}
{{- if regexMatch "//[^/@]*@|[?&][^=]*(key|sig|signature|token|secret|password|credential|code)=" (lower $value) }}
{{- fail (printf "%s holds credentials and would be stored in a ConfigMap: put it into the Secret, and its key into secrets.env" $name) }}
{{- end }}
{{- end }}
{{- range $name := keys (merge (include "lucius.settings" (dict "Values" (set (deepCopy $v) "settings" dict) "Release" .Release) | fromYaml) (include "lucius.controlSettings" . | fromYaml)) }}
{{- if hasKey $v.settings $name }}
{{- fail (printf "settings.%s: this setting has a value of its own in the chart (see values.yaml): set that one" $name) }}
{{- end }}
{{- end }}
{{- range $service, $s := $v.services }}
{{- if ne (hasKey $s "processes") (hasKey $s "processMemoryMiB") }}
{{- fail (printf "services.%s has only one of processes and processMemoryMiB: the memory of its container follows from both" $service) }}
{{- end }}
{{- if and $s.processes (hasKey ($s.resources | default dict) "limits") }}
{{- fail (printf "services.%s.resources.limits is set beside processes: leave it out" $service) }}
{{- end }}
{{- if and $s.resources (not (and $s.resources.requests (or $s.processes $s.resources.limits))) }}
{{- fail (printf "services.%s.resources needs requests, and limits unless processes says them" $service) }}
{{- end }}
{{- if and $v.keda.enabled (eq $v.keda.trigger "servicebus") (eq $v.bus.topology "shared") (gt (len $s.modes) 1) }}
{{- fail (printf "keda.trigger is servicebus, and services.%s has two modes in one subscription: set bus.topology to filtered or isolated, or leave modes.burst out" $service) }}
{{- end }}
{{- range $mode, $m := $s.modes }}
{{- $where := printf "services.%s.modes.%s" $service $mode }}
{{- if and $v.keda.enabled (hasKey $m "replicas") }}
{{- fail (printf "%s.replicas is %v and keda.enabled is true: set minReplicas and maxReplicas instead, or keda.enabled=false" $where $m.replicas) }}
{{- end }}
{{- if and $v.keda.enabled (not (and (hasKey $m "maxReplicas") (hasKey $m "fallbackReplicas"))) }}
{{- fail (printf "%s has no maxReplicas or no fallbackReplicas: KEDA needs both; set them, or keda.enabled=false and replicas" $where) }}
{{- end }}
{{- if and $v.keda.enabled (gt (int $m.minReplicas) (int $m.maxReplicas)) }}
{{- fail (printf "%s.minReplicas is %v and maxReplicas is %v: set minReplicas to at most maxReplicas" $where $m.minReplicas $m.maxReplicas) }}
{{- end }}
{{- end }}
{{- with $s.modes }}
{{- if and $v.keda.enabled .burst .default }}
{{- if ge (int .burst.maxReplicas) (int .default.maxReplicas) }}
{{- fail (printf "services.%s.modes.burst.maxReplicas is %v and that of default is %v: BURST needs the lower one, or it starves DEFAULT" $service .burst.maxReplicas .default.maxReplicas) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
