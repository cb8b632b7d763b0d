{{/*
moor.validate refuses values that contradict each other, or the cluster, in words. Every
template includes it. What has a wrong type or is misspelt, values.schema.json refuses.
*/}}
{{- define "moor.validate" -}}
{{- $v := .Values -}}
{{- $plugin := $v.host.snapCsiPlugin -}}
{{- $on := list -}}
{{- range $side := list "host" "dpu" -}}
{{- range $name, $component := get $v $side -}}
{{- if kindIs "map" $component }}{{ if $component.enabled }}{{ $on = append $on (printf "%s.%s" $side $name) }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $on = sortAlpha $on -}}
{{- if $v.dpu.docaSnap.enabled -}}
{{- fail "dpu.docaSnap is NVIDIA's own program in NVIDIA's own image, and Moor has none in its place: leave that release on NVIDIA's chart dpf-storage, which goes on to work beside this one" -}}
{{- end -}}
{{- if $v.dpu.nfsStorageVendorDpuPlugin.enabled -}}
{{- fail "dpu.nfsStorageVendorDpuPlugin: Moor has no plugin nvidia-nfs. Leave that release on NVIDIA's chart dpf-storage, or use dpu.fsStorageVendorDpuPlugin, which mounts NFS on the DPU" -}}
{{- end -}}
{{- if $v.cluster -}}
{{- include "moor.validate.cluster" (dict "v" $v "on" $on) -}}
{{- else if ne (len $on) 1 -}}
{{- fail (printf "a release is one component, and these are enabled: [%s]. Enable exactly one of host.{snapCsiPlugin,snapHostController,snapController} and dpu.{configuration,snapNodeDriver,blockStorageVendorDpuPlugin,fsStorageVendorDpuPlugin}, or set cluster to host or dpu to install all that a cluster needs" (join ", " $on)) -}}
{{- else if and $plugin.enabled (not (or $plugin.controller.enabled $plugin.node.enabled)) -}}
{{- fail "host.snapCsiPlugin.enabled is true, so one of host.snapCsiPlugin.controller.enabled and host.snapCsiPlugin.node.enabled has to be: which half is wanted?" -}}
{{- end -}}
{{- if and $v.host.snapHostController.enabled (not $v.host.snapHostController.config.targetNamespace) -}}
{{- fail "host.snapHostController.config.targetNamespace is required: the namespace of the storage objects in the DPU cluster" -}}
{{- end -}}
{{- if and $v.host.snapController.enabled (not $v.host.snapController.config.dpuClusterSecret) -}}
{{- fail "host.snapController.config.dpuClusterSecret is required: the Secret that a DPUServiceCredentialRequest of type tokenFile makes" -}}
{{- end -}}
{{- if and $v.host.snapHostController.config.dpuCluster.tokenFileSecret (not $v.host.snapHostController.config.dpuCluster.server) -}}
{{- fail "host.snapHostController.config.dpuCluster.tokenFileSecret needs dpuCluster.server, the address of the DPU cluster's API server (https://host:port): a kubeconfig has to name it" -}}
{{- end -}}
{{- with $v.host.snapHostController.config -}}
{{- if and .severalDpuClusters (not (and .dpuClusterName .dpuClusterNamespace)) -}}
{{- fail "host.snapHostController.config.severalDpuClusters needs dpuClusterNamespace and dpuClusterName, the DPUCluster that this release serves: DPUStorageNodes name it in spec.dpuCluster" -}}
{{- end -}}
{{- end -}}
{{- include "moor.validate.driver" . -}}
{{- end -}}

{{/* moor.validate.cluster {v, on}: of a release that is a whole cluster. */}}
{{- define "moor.validate.cluster" -}}
{{- $vendors := list "dpu.blockStorageVendorDpuPlugin" "dpu.fsStorageVendorDpuPlugin" -}}
{{- $cluster := .v.cluster -}}
{{- range .on -}}
{{- if not (has . $vendors) -}}
{{- fail (printf "cluster is %s, so the release has all that this cluster needs, and %s.enabled is for a release of one component: leave it out, or leave cluster empty" $cluster .) -}}
{{- else if ne $cluster "dpu" -}}
{{- fail (printf "%s runs in the DPU cluster, and cluster is %s" . $cluster) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
moor.validate.driver: attachRequired of a CSIDriver cannot be changed, and Kubernetes would
say so in the middle of an upgrade. (helm template and lint see no cluster, and no object.)
*/}}
{{- define "moor.validate.driver" -}}
{{- $plugin := .Values.host.snapCsiPlugin -}}
{{- if or (eq .Values.cluster "host") (and $plugin.enabled $plugin.controller.enabled) -}}
{{- $wanted := eq .Values.attachMode "Controller" -}}
{{- $there := lookup "storage.k8s.io/v1" "CSIDriver" "" $plugin.name -}}
{{- if $there -}}
{{- if ne $wanted (default false $there.spec.attachRequired) -}}
{{- fail (printf "attachMode is %s, which needs a CSIDriver %s with attachRequired %v. The one in the cluster has %v, and that field of a CSIDriver cannot be changed. Either keep the attach mode, or end all pods with volumes of this driver, wait until no VolumeAttachment and no DPUVolumeAttachment is left, delete the CSIDriver (kubectl delete csidriver %s), and upgrade then" .Values.attachMode $plugin.name $wanted (default false $there.spec.attachRequired) $plugin.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
