{{- define "mirror.name" -}}
{{- if contains "mirror" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-mirror" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- /* A CronJob's name has at most 52 characters. */}}
{{- define "mirror.audit.name" -}}
{{- printf "%s-audit" (include "mirror.name" . | trunc 46 | trimSuffix "-") }}
{{- end }}

{{- define "mirror.audit.selector" -}}
app.kubernetes.io/name: mirror-audit
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mirror.selector" -}}
app.kubernetes.io/name: mirror
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mirror.labels" -}}
{{ include "mirror.selector" . }}
{{ include "mirror.labels.common" . }}
{{- end }}

{{- define "mirror.audit.labels" -}}
{{ include "mirror.audit.selector" . }}
{{ include "mirror.labels.common" . }}
{{- end }}

{{- define "mirror.labels.common" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The port of http.listen; fails if probes could not reach it. */}}
{{- define "mirror.port" -}}
{{- $config := fromYaml .Values.config }}
{{- with get $config "Error" }}{{ fail (printf "config is not YAML: %s" .) }}{{ end }}
{{- $listen := get $config "http.listen" | toString }}
{{- if not (regexMatch "^(0\\.0\\.0\\.0|\\[::\\]):[1-9][0-9]*$" $listen) }}
{{- fail "config: http.listen must be \"0.0.0.0:9464\", or \"[::]:9464\" where pods have IPv6 only: probes come to the pod's address" }}
{{- end }}
{{- regexFind "[0-9]+$" $listen }}
{{- end }}

{{- /* Seconds: the drain, 25 s in which workers leave their group and end, and a margin of 20 s. */}}
{{- define "mirror.grace" -}}
{{- $config := fromYaml .Values.config }}
{{- $drain := 15000 }}
{{- if hasKey $config "drain.timeout.ms" }}{{ $drain = get $config "drain.timeout.ms" | int }}{{ end }}
{{- add (div (add $drain 999) 1000) 45 }}
{{- end }}

{{- /* Of an image's values, and the chart's appVersion. */}}
{{- define "mirror.image" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}{{ else }}{{ .image.repository }}:{{ .image.tag | default .version }}{{ end }}
{{- end }}
