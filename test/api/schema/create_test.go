//go:build api

package schema

import "testing"

// changes are fields by path; see set.
type changes map[string]any

func TestCreate(t *testing.T) {
	for kind, rows := range map[string][]struct {
		name   string
		change changes
		want   string
	}{
		"DPUStoragePolicy": {
			{"good", nil, ""},
			{"one vendor", changes{"spec.dpuStorageVendors": yamlText("[a]")}, ""},
			{"no vendors field", changes{"spec.dpuStorageVendors": nil}, "spec.dpuStorageVendors: Required value"},
			{"empty vendors", changes{"spec.dpuStorageVendors": yamlText("[]")}, "should have at least 1 items"},
			{"vendor that is a number", changes{"spec.dpuStorageVendors": yamlText("[1]")}, "must be of type string"},
			{"algorithm of the other cluster", changes{"spec.selectionAlgorithm": "LocalNVolumes"}, `Unsupported value: "LocalNVolumes"`},
			{"algorithm in lower case", changes{"spec.selectionAlgorithm": "random"}, "Unsupported value"},
			{"parameter that is a number", changes{"spec.parameters": yamlText("{x: 1}")}, "must be of type string"},
			{"unknown field", changes{"spec.color": "red"}, `unknown field "spec.color"`},
		},
		"DPUVolumeSnapshot": {
			{"good", nil, ""},
			{"alone", changes{"spec.group": nil}, ""},
			{"group of others", changes{"spec.group.volumeNames": yamlText("[w]")}, "group.volumeNames has to name the volume itself"},
			{"group of none", changes{"spec.group.volumeNames": yamlText("[]")}, "should have at least 1 items"},
		},
		"DPUStorageVendor": {
			{"good", nil, ""},
			{"no class", changes{"spec.storageClassName": nil}, "spec.storageClassName: Required value"},
			{"empty class", changes{"spec.storageClassName": ""}, "should be at least 1 chars long"},
			{"no plugin", changes{"spec.pluginName": nil}, "spec.pluginName: Required value"},
			{"empty plugin", changes{"spec.pluginName": ""}, "should be at least 1 chars long"},
		},
		"DPUVolume": {
			{"good", nil, ""},
			{"ReadOnlyMany", changes{"spec.accessModes": yamlText("[ReadOnlyMany]")}, ""},
			{"ReadWriteMany", changes{"spec.accessModes": yamlText("[ReadWriteMany]")}, ""},
			{"ReadWriteOncePod", changes{"spec.accessModes": yamlText("[ReadWriteOncePod]")}, ""},
			{"three modes", changes{"spec.accessModes": yamlText("[ReadWriteOnce, ReadOnlyMany, ReadWriteMany]")}, ""},
			{"four modes", changes{"spec.accessModes": yamlText("[ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod]")}, "must have at most 3 items"},
			{"no modes field", changes{"spec.accessModes": nil}, "spec.accessModes: Required value"},
			{"empty modes", changes{"spec.accessModes": yamlText("[]")}, "should have at least 1 items"},
			{"unknown mode", changes{"spec.accessModes": yamlText("[ReadWriteTwice]")}, "each access mode must be one of"},
			{"short name of a mode", changes{"spec.accessModes": yamlText("[RWO]")}, "each access mode must be one of"},
			{"no policy", changes{"spec.dpuStoragePolicyName": nil}, "spec.dpuStoragePolicyName: Required value"},
			{"empty policy", changes{"spec.dpuStoragePolicyName": ""}, "should be at least 1 chars long"},
			{"no resources", changes{"spec.resources": nil}, "spec.resources: Required value"},
			{"no requests", changes{"spec.resources": yamlText("{limits: {storage: 1Gi}}")}, "resources.requests.storage must be set"},
			{"requests of something else", changes{"spec.resources": yamlText("{requests: {cpu: 1}}")}, "resources.requests.storage must be set"},
			{"size that is no quantity", changes{"spec.resources": yamlText("{requests: {storage: big}}")}, "spec.resources.requests.storage"},
			{"size as a number", changes{"spec.resources": yamlText("{requests: {storage: 1048576}}")}, ""},
			{"limit", changes{"spec.resources": yamlText("{requests: {storage: 1Gi}, limits: {storage: 2Gi}}")}, ""},
			{"Filesystem", changes{"spec.volumeMode": "Filesystem"}, ""},
			{"unknown volume mode", changes{"spec.volumeMode": "Tape"}, `Unsupported value: "Tape"`},
			{"no parameters", changes{"spec.parameters": nil}, ""},
			{"replication", changes{"spec.replication": yamlText("{maxShares: 2, maxMountReplicaCount: 1, warmth: PreEmulated, failover: Fence}")}, ""},
			{"attached replicas of many writers", changes{"spec.accessModes": yamlText("[ReadWriteMany]"), "spec.replication": yamlText("{maxShares: 2, warmth: Attached}")}, ""},
			{"attached replicas of many readers", changes{"spec.accessModes": yamlText("[ReadOnlyMany]"), "spec.replication": yamlText("{maxShares: 2, warmth: Attached}")}, ""},
			{"attached replicas of one writer", changes{"spec.replication": yamlText("{maxShares: 2, warmth: Attached}")}, "a single writer's replica stays hidden"},
			{"replicas released soon", changes{"spec.replication": yamlText("{maxShares: 2, releaseAfterSeconds: 30}")}, ""},
			{"replicas released before", changes{"spec.replication": yamlText("{maxShares: 2, releaseAfterSeconds: -1}")}, "should be greater than or equal to 0"},
			{"replication by default", changes{"spec.replication": yamlText("{}")}, ""},
			{"as many replicas as shares", changes{"spec.replication": yamlText("{maxShares: 2, maxMountReplicaCount: 2}")}, "maxMountReplicaCount must be less than maxShares"},
			{"no shares", changes{"spec.replication": yamlText("{maxShares: 0}")}, "should be greater than or equal to 1"},
			{"fewer than no replicas", changes{"spec.replication": yamlText("{maxMountReplicaCount: -1}")}, "should be greater than or equal to 0"},
			{"unknown warmth", changes{"spec.replication": yamlText("{warmth: Hot}")}, `Unsupported value: "Hot"`},
			{"unknown failover", changes{"spec.replication": yamlText("{failover: Maybe}")}, `Unsupported value: "Maybe"`},
		},
		"DPUVolumeAttachment": {
			{"good", nil, ""},
			{"vf", changes{"spec.functionType": "vf", "spec.hotplugFunction": false}, ""},
			{"pf without hotplug", changes{"spec.hotplugFunction": false}, ""},
			{"hotplug of a vf", changes{"spec.functionType": "vf"}, "hotplugFunction can be true only with functionType pf"},
			{"warmth", changes{"spec.role": "Replica", "spec.warmth": "Attached"}, ""},
			{"unknown warmth", changes{"spec.role": "Replica", "spec.warmth": "Hot"}, `Unsupported value: "Hot"`},
			{"unknown function", changes{"spec.functionType": "sf"}, `Unsupported value: "sf"`},
			{"no function", changes{"spec.functionType": nil}, "spec.functionType: Required value"},
			{"no hotplug", changes{"spec.hotplugFunction": nil}, "spec.hotplugFunction: Required value"},
			{"hotplug as a word", changes{"spec.hotplugFunction": "true"}, "must be of type boolean"},
			{"no volume", changes{"spec.dpuVolumeName": nil}, "spec.dpuVolumeName: Required value"},
			{"empty volume", changes{"spec.dpuVolumeName": ""}, "should be at least 1 chars long"},
			{"no node", changes{"spec.dpuNodeName": nil}, "spec.dpuNodeName: Required value"},
			{"empty node", changes{"spec.dpuNodeName": ""}, "should be at least 1 chars long"},
			{"primary", changes{"spec.role": "Primary"}, ""},
			{"replica", changes{"spec.role": "Replica"}, ""},
			{"unknown role", changes{"spec.role": "Standby"}, `Unsupported value: "Standby"`},
			{"read-only", changes{"spec.readOnly": true}, ""},
		},
		"StoragePolicy": {
			{"good", nil, ""},
			{"nothing said", changes{"spec": yamlText("{}")}, ""},
			{"algorithm of the other cluster", changes{"spec.storageSelectionAlg": "NumberVolumes"}, `Unsupported value: "NumberVolumes"`},
			{"vendor that is a number", changes{"spec.storageVendors": yamlText("[1]")}, "must be of type string"},
		},
		"StorageVendor": {
			{"good", nil, ""},
			{"no class", changes{"spec.storageClassName": nil}, "spec.storageClassName: Required value"},
			{"empty class", changes{"spec.storageClassName": ""}, "should be at least 1 chars long"},
			{"no plugin", changes{"spec.pluginName": nil}, "spec.pluginName: Required value"},
			{"empty plugin", changes{"spec.pluginName": ""}, "should be at least 1 chars long"},
			{"status", changes{"status": yamlText("{x: 1}")}, `unknown field "status"`},
		},
		"Volume": {
			{"good", nil, ""},
			{"no request", changes{"spec.request": nil}, "spec.request: Required value"},
			{"empty request", changes{"spec.request": yamlText("{}")}, ""},
			{"size that is no quantity", changes{"spec.request.capacityRange.request": "big"}, "spec.request.capacityRange.request"},
			{"Retain", changes{"spec.volume": yamlText("{reclaimPolicy: Retain}")}, ""},
			{"unknown reclaim policy", changes{"spec.volume": yamlText("{reclaimPolicy: Recycle}")}, `Unsupported value: "Recycle"`},
		},
		"VolumeAttachment": {
			{"good", nil, ""},
			{"with epoch", changes{"spec.epoch": 3}, ""},
			{"epoch as a word", changes{"spec.epoch": "three"}, "must be of type integer"},
			{"no function", changes{"spec.functionType": nil}, "spec.functionType: Required value"},
			{"no hotplug", changes{"spec.hotplugFunction": nil}, "spec.hotplugFunction: Required value"},
			{"unknown function", changes{"spec.functionType": "sf"}, `Unsupported value: "sf"`},
			{"unknown role", changes{"spec.role": "Standby"}, `Unsupported value: "Standby"`},
		},
		"SVVolumeAttachment": {
			{"good", nil, ""},
			{"no attacher", changes{"spec.attacher": nil}, "spec.attacher: Required value"},
			{"no node", changes{"spec.nodeName": nil}, "spec.nodeName: Required value"},
			{"no source", changes{"spec.source": nil}, "spec.source: Required value"},
		},
		"WriterClaim": {
			{"good", nil, ""},
			{"no volume", changes{"spec.volumeName": nil}, "spec.volumeName: Required value"},
			{"empty volume", changes{"spec.volumeName": ""}, "should be at least 1 chars long"},
			{"an operator's word", changes{"spec.operatorReceipt": yamlText("{epoch: 1, operator: jane, reason: pulled the plug}")}, ""},
			{"an operator's word on no epoch", changes{"spec.operatorReceipt": yamlText("{epoch: 0, operator: jane, reason: x}")}, "should be greater than or equal to 1"},
			{"a word without an operator", changes{"spec.operatorReceipt": yamlText("{epoch: 1, operator: '', reason: x}")}, "should be at least 1 chars long"},
			{"a word without a reason", changes{"spec.operatorReceipt": yamlText("{epoch: 1, operator: jane}")}, "reason: Required value"},
		},
		"DPUStorageNode": {
			{"good", nil, ""},
			{"without a DPU", changes{"spec": yamlText("{}")}, ""},
			{"no spec", changes{"spec": nil}, ""},
			{"name of a DPU that is a number", changes{"spec.dpuName": 7}, "must be of type string"},
		},
	} {
		for _, row := range rows {
			t.Run(kind+"/"+row.name, func(t *testing.T) {
				o := object(t, kind)
				for path, value := range row.change {
					set(t, o, path, value)
				}
				check(t, createStrictly(t, o), row.want)
			})
		}
	}
}

// TestUpdate changes a field of a good object that is there already.
func TestUpdate(t *testing.T) {
	for kind, rows := range map[string][]struct {
		name, path string
		value      any
		want       string
	}{
		"DPUStoragePolicy": {
			{"vendors", "spec.dpuStorageVendors", yamlText("[c]"), ""},
			{"algorithm", "spec.selectionAlgorithm", "NumberVolumes", ""},
		},
		"DPUStorageVendor": {{"plugin", "spec.pluginName", "other", ""}},
		"DPUVolume": {
			{"nothing", "spec.volumeMode", "Block", ""},
			{"policy", "spec.dpuStoragePolicyName", "q", "dpuStoragePolicyName is immutable"},
			{"parameters", "spec.parameters", yamlText(`{x: "2"}`), "parameters is immutable"},
			{"one parameter more", "spec.parameters", yamlText(`{x: "1", y: "2"}`), "parameters is immutable"},
			{"modes", "spec.accessModes", yamlText("[ReadWriteMany]"), "accessModes is immutable"},
			{"limit", "spec.resources.limits", yamlText("{storage: 9Gi}"), "resources.limits.storage can be raised, not set or removed"},
			{"mutable parameters", "spec.mutableParameters", yamlText(`{iops: "100"}`), ""},
			{"mode", "spec.volumeMode", "Filesystem", "volumeMode is immutable"},
		},
		"DPUVolumeAttachment": {
			{"volume", "spec.dpuVolumeName", "w", "dpuVolumeName is immutable"},
			{"node", "spec.dpuNodeName", "m", "dpuNodeName is immutable"},
			{"function", "spec.functionType", "vf", "functionType is immutable"},
			{"hotplug", "spec.hotplugFunction", false, "hotplugFunction is immutable"},
			{"promotion", "spec.role", "Primary", ""},
			{"warmth", "spec.warmth", "Attached", ""},
		},
		"VolumeAttachment": {
			{"epoch", "spec.epoch", 2, ""},
			{"metadata", "spec.parameters", yamlText("{a: b}"), ""},
		},
		"WriterClaim": {{"volume", "spec.volumeName", "w", "volumeName is immutable"}},
		"DPUStorageNode": {
			{"drain", "spec.drain", yamlText("{reason: new BFB}"), ""},
			{"the word alone", "spec.replaces", "d", ""},
			{"DPU without a word", "spec.dpuName", "e", "spec.dpuName: Invalid value: the host has DPU d, which may still write for it: name it in spec.replaces"},
			{"no DPU without a word", "spec.dpuName", "", "the host has DPU d"},
			{"DPU with the word", "spec", yamlText("{dpuName: e, replaces: d}"), ""},
			{"no DPU with the word", "spec", yamlText("{replaces: d}"), ""},
			{"DPU with a word about another", "spec", yamlText("{dpuName: e, replaces: c}"), "the host has DPU d"},
			{"DPU in the place of itself", "spec", yamlText("{dpuName: e, replaces: e}"), "the host has DPU d"},
			{"nothing that it was", "spec", yamlText("{}"), "the host has DPU d"},
		},
		"DPUVolumeSnapshot": {
			{"group", "spec.group.name", "h", "group is immutable"},
			{"volumes of the group", "spec.group.volumeNames", yamlText("[v]"), "group is immutable"},
		},
		"StorageSnapshot": {{"group", "spec.group", yamlText("{name: h, volumeNames: [v, w]}"), "group is immutable"}},
	} {
		for _, row := range rows {
			t.Run(kind+"/"+row.name, func(t *testing.T) {
				o := object(t, kind)
				mustCreate(t, o)
				set(t, o, row.path, row.value)
				check(t, clientOf(kind).Update(t.Context(), o), row.want)
			})
		}
	}
}
