{{/*
moor.networkPolicy {root, o}: the NetworkPolicy of a workload, made of what it is: its pods are
asked for metrics and for nothing else, and ask what their program asks. The kubelet's
probes need no rule: a node always reaches its own pods. Pods on the network of their node have none,
as no policy is about them.
*/}}
{{- define "moor.networkPolicy" -}}
{{- $o := .o -}}
{{- $v := .root.Values.networkPolicies -}}
{{- $pod := $o.spec.template.spec -}}
{{- $labels := $o.spec.template.metadata.labels -}}
{{- $ports := list -}}
{{- $egress := list -}}
{{- range $pod.containers -}}
{{- range .ports }}{{ if hasSuffix "metrics" .name }}{{ $ports = append $ports (dict "protocol" "TCP" "port" .containerPort) }}{{ end }}{{ end -}}
{{- if ne (first (default (list "") .command)) "storage-vendor-dpu-plugin" }}{{ $egress = include "moor.egress" $v | fromYamlArray }}
{{- /* NFS: the ports of version 3 are what rpcbind says. */ -}}
{{- else if has "--kind=fs" .args }}{{ $egress = list (dict) }}{{ end -}}
{{- end -}}
{{- $selector := dict "matchLabels" (deepCopy $o.spec.selector.matchLabels) -}}
{{- $component := "app.kubernetes.io/component" -}}
{{- if hasKey $labels $component }}{{ $_ := set $selector.matchLabels $component (get $labels $component) }}
{{- else }}{{ $_ := set $selector "matchExpressions" (list (dict "key" $component "operator" "DoesNotExist")) }}{{ end }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $o.metadata.name }}
  namespace: {{ $o.metadata.namespace }}
  labels:{{ toYaml $o.metadata.labels | nindent 4 }}
spec:
  podSelector:{{ toYaml $selector | nindent 4 }}
  policyTypes: [Ingress, Egress]
  {{- if $ports }}
  ingress:
  - ports:{{ toYaml $ports | nindent 4 }}
    {{- with $v.metricsFrom }}
    from:{{ toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- with $egress }}
  egress:{{ toYaml . | nindent 2 }}
  {{- end }}
{{ end -}}

{{/* moor.egress: what a program with an account asks: the API servers, and what they are called. */}}
{{- define "moor.egress" -}}
- ports:
  {{- range .apiServer.ports }}
  - {protocol: TCP, port: {{ . }}}
  {{- end }}
  {{- with .apiServer.cidrs }}
  to:
  {{- range . }}
  - ipBlock: {cidr: {{ . | quote }}}
  {{- end }}
  {{- end }}
- ports:
  - {protocol: UDP, port: 53}
  - {protocol: TCP, port: 53}
{{- range .extraEgress }}
- {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
