package records

// The keys of Volume.Context and Attachment.PublishContext.
const (
	// ContextImage is the file name of the image in the target directory.
	ContextImage = "moor.dev/image"
	// ContextDirectory takes the place of ContextImage and ContextPath for a
	// volume that is a directory.
	ContextDirectory = "moor.dev/directory"
	// ContextFilesystem takes the place of ContextImage and ContextPath for a
	// volume that is the file system in its image.
	ContextFilesystem = "moor.dev/filesystem"
	// ContextNode is the node that a directory or file system was attached to.
	ContextNode = "moor.dev/node"
	// ContextPath is the path of the image as the controller knows it.
	ContextPath = "moor.dev/image-path"
	// ContextReadOnly is "true" in the publish context of a node that may
	// not write.
	ContextReadOnly = "moor.dev/read-only"
	// ContextTargetAddress is where the node reaches the volume, "host:port",
	// if it does so through a target.
	ContextTargetAddress = "targetAddress"
	// ContextTargetExport is what it opens there. It holds the secret that
	// opens it: it is never logged.
	ContextTargetExport = "targetExport"
)

// The parameters of a volume. Of ParameterProvisioning, Thin (the default) takes
// room as it is written, Thick when it is made. ParameterKind is known where images
// hold file systems: KindDevice (the default) is a block device, KindDirectory the
// directory of such a file system.
const (
	ParameterProvisioning = "provisioning"
	Thin                  = "thin"
	Thick                 = "thick"
	ParameterKind         = "kind"
	KindDevice            = "device"
	KindDirectory         = "directory"
)
