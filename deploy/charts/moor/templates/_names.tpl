{{/* moor.fullname {root, values, component}: the full name of a component, by DPF's rule. */}}
{{- define "moor.fullname" -}}
{{- $name := default .component .values.nameOverride -}}
{{- if .values.fullnameOverride -}}
{{- .values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .root.Release.Name -}}
{{- .root.Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .root.Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* moor.image {root, image}: the image of a program of Moor, with ${1} for its name; what image leaves out is that of the whole chart. */}}
{{- define "moor.image" -}}
{{- $own := default dict .image -}}
{{- $repository := default (printf "%s/${1}" .root.Values.image.registry) $own.repository -}}
{{- $tag := default (default .root.Chart.AppVersion .root.Values.image.tag) $own.tag -}}
{{- printf "%s:%s" $repository $tag -}}
{{- end -}}

{{/* moor.labels {root, component}: the labels of every object. */}}
{{- define "moor.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .component }}
app.kubernetes.io/name: {{ . }}
{{- end }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{/*
moor.as {root, on, values, component, cluster, account, suffix, sa, role, foreign}: how a
component is called in this release.
  active     it is in this release: in that of its whole cluster, or if `on`
  plain      the release is a whole cluster: all names are those of the manifests
  component  the component's name, the label by which its pods are selected
  account    its ServiceAccount in the manifests, and sa that of this release; foreign: made elsewhere
  workload   the Deployment or DaemonSet; name, role: its rights
*/}}
{{- define "moor.as" -}}
account: {{ .account | quote }}
foreign: {{ default false .foreign }}
{{- if .root.Values.cluster }}
active: {{ eq .root.Values.cluster .cluster }}
plain: true
component: ""
sa: {{ .account | quote }}
{{- else }}
{{- $full := include "moor.fullname" (dict "root" .root "values" .values "component" .component) }}
{{- $name := printf "%s%s" $full (default "" .suffix) }}
active: {{ default false .on }}
plain: false
component: {{ .component }}
full: {{ $full | quote }}
workload: {{ $name | quote }}
name: {{ $name | quote }}
sa: {{ printf "%s%s" $full (default "" .sa) | quote }}
role: {{ printf "%s%s" $full (default "-role" .role) | quote }}
{{- end }}
{{- end -}}
