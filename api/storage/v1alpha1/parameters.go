package v1alpha1

// The parameters of a StorageClass that are DPF's or Moor's own; all others go
// to the vendor's plugin. docs/components/snap-csi-plugin.md describes them.
const (
	// ParameterPolicy names the DPUStoragePolicy; required. In the DPU cluster
	// it is a storage parameter of the Volume as well, which is DPF's rule.
	ParameterPolicy = "policy"
	// ParameterFunctionType is vf (default) or pf, in any case.
	ParameterFunctionType = "functionType"
	// ParameterHotplug is a boolean, default false; true needs pf.
	ParameterHotplug = "hotplugFunction"
	// ParameterEmulation is EmulationNVMe (default) or EmulationVirtioFS, in any
	// case. It is Moor's: DPF has a flag for it, and a second driver.
	ParameterEmulation = "emulation"
	// ParameterMaxShares is the most hosts that may have the volume, replicas
	// included: 1 (default) or more.
	ParameterMaxShares = "maxShares"
	// ParameterReplicas is how many replicas are kept: 0 to maxShares-1. Default:
	// maxShares-1 for a volume with a single writer, else 0.
	ParameterReplicas = "maxMountReplicaCount"
	// ParameterWarmth is a Warmth; default PreEmulated.
	ParameterWarmth = "replicaWarmth"
	// ParameterReleaseAfter is how long replicas outlive the last primary: a
	// duration of whole seconds, such as 90s or 5m. Default: the controller's
	// --replica-release-after.
	ParameterReleaseAfter = "replicaReleaseAfter"
	// ParameterFailover is a FailoverMode; Fence is the default if maxShares is
	// greater than 1.
	ParameterFailover = "failover"
	// ParameterPathTimeout is for how long the way of the primary's DPU to the storage may be
	// lost before the volume moves to another host: a duration of whole seconds from
	// MinPathTimeoutSeconds to MaxPathTimeoutSeconds, or 0s: it does not. Default:
	// DefaultPathTimeoutSeconds.
	ParameterPathTimeout = "pathTimeout"
	// ParameterDeadMount is a DeadMountMode; default Restart with failover Fence, else
	// Tell.
	ParameterDeadMount = "deadMount"
)

// The bounds of ParameterPathTimeout and its default, in seconds. The shortest is twice as
// long as snap-node-driver takes to notice a loss, so that a replica's DPU has noticed, too,
// where the storage itself is away.
const (
	MinPathTimeoutSeconds     = 10
	MaxPathTimeoutSeconds     = 3600
	DefaultPathTimeoutSeconds = 15
)

// ParameterRequestQueues is the one parameter of a virtio-fs device that a StorageClass can
// set: the number of its request queues, from 1 on; default 8. It is named as in the call
// by which SNAP makes the device.
const ParameterRequestQueues = "num_request_queues"

// The values of ParameterEmulation.
const (
	// EmulationNVMe: the host sees a block device.
	EmulationNVMe = "nvme"
	// EmulationVirtioFS: the host sees a file system of the vendor's.
	EmulationVirtioFS = "virtiofs"
)

// Keys of the volume context, which are the attributes of a PersistentVolume, as
// DPF names them.
const (
	VolumeContextPolicy       = "storagePolicyName"
	VolumeContextVendor       = "storageVendorName"
	VolumeContextPlugin       = "storageVendorPluginName"
	VolumeContextFunctionType = "functionType"
	VolumeContextHotplug      = "hotplugFunction"
	// VolumeContextEmulation is Moor's; absent for NVMe.
	VolumeContextEmulation = "emulation"
)

// Keys of the publish context, as DPF names them.
const (
	PublishContextVolume      = "nv-volumeName"
	PublishContextAttachment  = "nv-volumeAttachmentName"
	PublishContextPCIAddress  = "nv-pciDeviceAddress"
	PublishContextNamespaceID = "nv-nvmeNsID"
	// PublishContextTag is what the host mounts of a virtio-fs device.
	PublishContextTag = "nv-virtioFsTag"
	// PublishContextVUID is the VUID of the function, a virtual one's physical
	// function's; absent where the DPU does not tell.
	PublishContextVUID = "nv-funcVUID"
	// PublishContextUUID is the one key that DPF does not have: the UUID of the
	// namespace, by which the host knows it where a hot-plugged function came
	// back elsewhere.
	PublishContextUUID = "nv-nvmeUUID"
)
