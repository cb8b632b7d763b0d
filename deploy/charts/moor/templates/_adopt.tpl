{{/*
The objects of this chart are the manifests of deploy/, which lie in files/. The test bed
applies the same ones as they are. What a release changes in them is said by `as`, how
things are called (moor.as), and by `patch`, which values set:

  replicas, updateStrategy  of the workload
  labels, annotations       of the workload and its pods; podLabels, podAnnotations of its pods
  pod                       merged into the pod's spec; null removes a field
  volumes                   {name: what it is}, in the place of that volume, or beside the others
  drop                      [containers] that are left out
  containers                {name: {image, imagePullPolicy, ports, resources, securityContext, env: [], mounts: [], args: {--flag: value}}}

moor.adopt {root, file, as, patch, image, driver, kubelet, whole, only} prints the objects of
one file; of `only` this name, if it is given. In a release of one component those of other
accounts are left out, unless the file is `whole`.
*/}}
{{- define "moor.adopt" -}}
{{- $root := .root -}}
{{- $as := .as -}}
{{- $patch := default dict .patch -}}
{{- $whole := .whole -}}
{{- $only := .only -}}
{{- $namespace := $root.Release.Namespace -}}
{{- $text := $root.Files.Get (printf "files/%s" .file) -}}
{{- if not $text }}{{ fail (printf "files/%s is not in the chart: package it with helm package, which follows its symbolic links" .file) }}{{ end -}}
{{- $text = $text | replace "dpf-operator-system" $namespace -}}
{{- $text = regexReplaceAll "ghcr\\.io/moor-storage/([a-z-]+):[A-Za-z0-9._-]+" $text (include "moor.image" (dict "root" $root "image" .image)) -}}
{{- with .kubelet }}{{ $text = $text | replace "/var/lib/kubelet" . }}{{ end -}}
{{- with .driver }}{{ $text = $text | replace "csi.snap.nvidia.com" . }}{{ end -}}
{{- if not $as.plain -}}
{{- $user := printf "'system:serviceaccount:%s:%%s'" $namespace -}}
{{- $text = $text | replace (printf $user $as.account) (printf $user $as.sa) -}}
{{- end -}}
{{- $selector := printf "{app.kubernetes.io/name: %s, app.kubernetes.io/instance: %q${2}}" (default "$1" $as.component) $root.Release.Name -}}
{{- $text = regexReplaceAll "\\{app\\.kubernetes\\.io/name: ([a-z0-9-]+)(, [^}]*)?\\}" $text (replace "$1" "${1}" $selector) -}}
{{- range splitList "\n---\n" $text -}}
{{- $o := fromYaml . -}}
{{- if $o.Error }}{{ fail (printf "a manifest of the chart is no YAML: %s" $o.Error) }}{{ end -}}
{{- if and $o.kind (or (not $only) (eq $only (dig "metadata" "name" "" $o))) -}}
{{- if not $as.plain }}{{ include "moor.rename" (dict "o" $o "as" $as "whole" $whole) }}{{ end -}}
{{- if not (hasKey $o "skip") -}}
{{- if has $o.kind (list "Deployment" "DaemonSet") }}{{ include "moor.patch" (dict "o" $o "as" $as "patch" $patch "root" $root) }}{{ end -}}
{{- $labels := include "moor.labels" (dict "root" $root "component" $as.component) | fromYaml -}}
{{- $_ := set $o.metadata "labels" (mergeOverwrite (default dict $o.metadata.labels) $labels) }}
---
{{ toYaml $o }}
{{- if and $root.Values.networkPolicies.enabled (has $o.kind (list "Deployment" "DaemonSet")) (not (dig "spec" "template" "spec" "hostNetwork" false $o)) -}}
{{- include "moor.networkPolicy" (dict "root" $root "o" $o) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* moor.rename {o, as, whole}: gives an object the names of a release of one component, or marks it with skip. */}}
{{- define "moor.rename" -}}
{{- $o := .o -}}
{{- $as := .as -}}
{{- $was := $o.metadata.name -}}
{{- if eq $o.kind "FlowSchema" -}}
{{- include "moor.flows" . -}}
{{- $_ := set $o.metadata "name" (printf "%s-%s" $as.name $was) -}}
{{- else if and (not .whole) (not (contains $as.account $was)) (not (has $o.kind (list "Deployment" "DaemonSet" "PodDisruptionBudget"))) -}}
{{- $_ := set $o "skip" true -}}
{{- else if and (eq $o.kind "ServiceAccount") $as.foreign -}}
{{- $_ := set $o "skip" true -}}
{{- else -}}
{{- $_ := set $o.metadata "name" (include "moor.renamed" (dict "kind" $o.kind "name" $was "as" $as)) -}}
{{- with $o.roleRef }}{{ $_ := set . "name" (include "moor.renamed" (dict "kind" .kind "name" .name "as" $as)) }}{{ end -}}
{{- range $o.subjects }}{{ $_ := set . "name" (include "moor.renamed" (dict "kind" .kind "name" .name "as" $as)) }}{{ end -}}
{{- if eq $o.kind "ValidatingAdmissionPolicyBinding" }}{{ $_ := set $o.spec "policyName" $o.metadata.name }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* moor.renamed {kind, name, as}: what an object of the manifests is called in a release of one component. */}}
{{- define "moor.renamed" -}}
{{- if eq .kind "ServiceAccount" }}{{ .as.sa }}
{{- else if eq .kind "ClusterRole" }}{{ .as.role }}
{{- else if eq .kind "ClusterRoleBinding" }}{{ .as.role }}-binding
{{- else if has .kind (list "Deployment" "DaemonSet" "PodDisruptionBudget") }}{{ .as.workload }}
{{- else if has .kind (list "CSIDriver" "VolumeSnapshotClass" "VolumeGroupSnapshotClass") }}{{ .name }}
{{- else if contains .as.account .name }}{{ .name | replace .as.account .as.name }}
{{- else }}{{ printf "%s-%s" .as.name .name }}
{{- end -}}
{{- end -}}

{{/* moor.flows {o, as}: keeps the account of one component in a FlowSchema, which is skipped if it speaks of others only. */}}
{{- define "moor.flows" -}}
{{- $as := .as -}}
{{- $rules := list -}}
{{- range .o.spec.rules -}}
{{- $subjects := list -}}
{{- range .subjects -}}
{{- if eq .serviceAccount.name $as.account -}}
{{- $_ := set .serviceAccount "name" $as.sa -}}
{{- $subjects = append $subjects . -}}
{{- end -}}
{{- end -}}
{{- if $subjects }}{{ $_ := set . "subjects" $subjects }}{{ $rules = append $rules . }}{{ end -}}
{{- end -}}
{{- if $rules }}{{ $_ := set .o.spec "rules" $rules }}{{ else }}{{ $_ := set .o "skip" true }}{{ end -}}
{{- end -}}

{{/* moor.patch {o, as, patch}: changes a workload by what values set. */}}
{{- define "moor.patch" -}}
{{- $o := .o -}}
{{- $patch := .patch -}}
{{- $template := $o.spec.template -}}
{{- $spec := $template.spec -}}
{{- if and (not .as.plain) $spec.serviceAccountName }}{{ $_ := set $spec "serviceAccountName" .as.sa }}{{ end -}}
{{- if hasKey $patch "replicas" }}{{ $_ := set $o.spec "replicas" $patch.replicas }}{{ end -}}
{{- with $patch.updateStrategy }}{{ $_ := set $o.spec "updateStrategy" . }}{{ end -}}
{{- range $key := list "labels" "annotations" -}}
{{- $_ := set $o.metadata $key (merge (default dict (get $o.metadata $key)) (default dict (get $patch $key))) -}}
{{- $pods := merge (default dict (get $template.metadata $key)) (default dict (get $patch $key)) (default dict (get $patch (printf "pod%s" (title $key)))) -}}
{{- if $pods }}{{ $_ := set $template.metadata $key $pods }}{{ end -}}
{{- if not (get $o.metadata $key) }}{{ $_ := unset $o.metadata $key }}{{ end -}}
{{- end -}}
{{- range $key, $value := $patch.pod -}}
{{- if kindIs "invalid" $value }}{{ $_ := unset $spec $key }}
{{- else if kindIs "map" $value }}{{ $_ := set $spec $key (mergeOverwrite (default dict (get $spec $key)) $value) }}
{{- else }}{{ $_ := set $spec $key $value }}{{ end -}}
{{- end -}}
{{- with $patch.affinity }}{{ $_ := set $spec "affinity" . }}{{ end -}}
{{- range $name, $volume := $patch.volumes -}}
{{- $volumes := list (merge (dict "name" $name) $volume) -}}
{{- range $spec.volumes }}{{ if ne .name $name }}{{ $volumes = append $volumes . }}{{ end }}{{ end -}}
{{- $_ := set $spec "volumes" $volumes -}}
{{- end -}}
{{- $containers := list -}}
{{- range $spec.containers -}}
{{- if not (has .name (default list $patch.drop)) -}}
{{- include "moor.patchContainer" (dict "c" . "p" (default dict (get (default dict $patch.containers) .name))) -}}
{{- if not $.root.Values.metrics.secure }}{{ include "moor.plainMetrics" . }}{{ end -}}
{{- $containers = append $containers . -}}
{{- end -}}
{{- end -}}
{{- $_ := set $spec "containers" $containers -}}
{{- end -}}

{{/* moor.plainMetrics: has a container of a program that can do both serve its metrics, and what its probes ask for there, by HTTP. */}}
{{- define "moor.plainMetrics" -}}
{{- if has (first (default (list "") .command)) (list "snap-csi-plugin" "snap-host-controller" "snap-controller" "snap-node-driver") -}}
{{- $_ := set . "args" (append .args "--insecure-metrics") -}}
{{- range $probe := list "livenessProbe" "readinessProbe" }}{{ with get $ $probe }}{{ $_ := unset .httpGet "scheme" }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* moor.patchContainer {c, p}: the same of one container. */}}
{{- define "moor.patchContainer" -}}
{{- $c := .c -}}
{{- $p := .p -}}
{{- range $key := list "image" "imagePullPolicy" "ports" -}}
{{- with get $p $key }}{{ $_ := set $c $key . }}{{ end -}}
{{- end -}}
{{- range $key := list "resources" "securityContext" -}}
{{- with get $p $key }}{{ $_ := set $c $key (mergeOverwrite (default dict (get $c $key)) .) }}{{ end -}}
{{- end -}}
{{- with $p.env }}{{ $_ := set $c "env" (concat (default list $c.env) .) }}{{ end -}}
{{- with $p.mounts }}{{ $_ := set $c "volumeMounts" (concat (default list $c.volumeMounts) .) }}{{ end -}}
{{- range $flag, $value := $p.args -}}
{{- $args := list -}}
{{- $new := printf "%s=%v" $flag $value -}}
{{- range $c.args -}}
{{- if or (eq . $flag) (hasPrefix (printf "%s=" $flag) .) }}{{ $args = append $args $new }}{{ else }}{{ $args = append $args . }}{{ end -}}
{{- end -}}
{{- if not (has $new $args) }}{{ $args = append $args $new }}{{ end -}}
{{- $_ := set $c "args" $args -}}
{{- end -}}
{{- end -}}

{{/*
moor.patchOf {root, values, container, daemon}: the patch by the values that every
component has. container is the main one; daemon: DPF fills serviceDaemonSet for it.
*/}}
{{- define "moor.patchOf" -}}
{{- $root := .root -}}
{{- $v := .values -}}
{{- $patch := dict -}}
{{- $pod := dict -}}
{{- $main := default dict (deepCopy (default dict $v.container)) -}}
{{- if not (kindIs "invalid" $v.replicas) }}{{ $_ := set $patch "replicas" (int $v.replicas) }}{{ end -}}
{{- range $key := list "podLabels" "podAnnotations" "affinity" }}{{ with get $v $key }}{{ $_ := set $patch $key . }}{{ end }}{{ end -}}
{{- with default $root.Values.imagePullSecrets $v.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end -}}
{{- with $v.podSecurityContext }}{{ $_ := set $pod "securityContext" . }}{{ end -}}
{{- with $v.tolerations }}{{ $_ := set $pod "tolerations" . }}{{ end -}}
{{- with $v.nodeSelector }}{{ $_ := set $pod "nodeSelector" . }}{{ end -}}
{{- with $v.hostNetwork }}{{ $_ := set $pod "hostNetwork" . }}{{ end -}}
{{- range $key := list "imagePullPolicy" "resources" "securityContext" }}{{ with get $v $key }}{{ $_ := set $main $key . }}{{ end }}{{ end -}}
{{- with $v.env }}{{ $_ := set $main "env" . }}{{ end -}}
{{- $args := deepCopy (default dict $v.extraArgs) -}}
{{- if not (kindIs "invalid" $v.logLevel) }}{{ $_ := set $args "--v" (int $v.logLevel) }}{{ end -}}
{{- $_ := set $main "args" (merge (default dict $main.args) $args) -}}
{{- if .daemon -}}
{{- $s := $root.Values.serviceDaemonSet -}}
{{- range $key := list "labels" "annotations" "updateStrategy" }}{{ with get $s $key }}{{ $_ := set $patch $key . }}{{ end }}{{ end -}}
{{- with $s.nodeSelector -}}
{{- $_ := set $patch "affinity" (dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" .)) -}}
{{- $_ := set $pod "nodeSelector" nil -}}
{{- end -}}
{{- with $s.resources }}{{ $_ := set $main "resources" (dict "limits" . "requests" .) }}{{ end -}}
{{- end -}}
{{- $_ := set $patch "pod" $pod -}}
{{- $_ := set $patch "containers" (dict .container $main) -}}
{{- toYaml $patch -}}
{{- end -}}
