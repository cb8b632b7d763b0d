package main

// The packages of the services around the right to write.
const (
	controllerService = "./pkg/controller/csi"
	nodeService       = "./pkg/node/csi"
	server            = "./pkg/csiserver"
	attacher          = "./pkg/controller/attacher"
	vendorPolicy      = "./pkg/controller/dpucluster/policy"
	hostPolicy        = "./pkg/controller/hostcluster/policy"
	choice            = "./pkg/placement"
	probe             = "./pkg/node/hostprobe"
	podStaging        = "./pkg/controller/pods/staging"
	podVendor         = "./pkg/node/pods/vendor"
	servedFields      = "./internal/kube/served"
	nodeDriver        = "./cmd/snap-node-driver"
	nodePlugin        = "./cmd/snap-csi-plugin"
)

// Their files that are edited more than once.
const (
	nodeExpand   = "pkg/node/csi/expand.go"
	nodePublish  = "pkg/node/csi/publish.go"
	nodeContent  = "pkg/node/csi/content.go"
	csiPublish   = "pkg/controller/csi/publish.go"
	csiValidate  = "pkg/controller/csi/validate.go"
	csiVolume    = "pkg/controller/csi/volume.go"
	svAttach     = "pkg/controller/attacher/attach.go"
	diskGrow     = "internal/hostdev/grow.go"
	diskProbe    = "internal/hostdev/probe.go"
	diskNVMe     = "internal/hostdev/nvme.go"
	vendorCopy   = "reference/localvendor/copies.go"
	vendorJudged = "pkg/controller/dpucluster/policy/reconciler.go"
	stagingUser  = "pkg/controller/pods/staging/user.go"
	stagingAdmit = "pkg/controller/pods/staging/admit.go"
	podHost      = "pkg/node/pods/vendor/host.go"
)

// services are checks of the CSI services, of expansion, host devices, the
// attacher and policies, each switched off.
var services = []mutation{
	// A controller does not write where it is forgotten.
	{name: "a controller goes on where its fields are dropped", tests: servedFields, edits: []edit{
		{"internal/kube/served/watch.go", "[*DroppedError](err); dropped {", "[*DroppedError](err); dropped && false {"},
	}},
	{name: "a controller ends as an API server does not answer", tests: servedFields, edits: []edit{
		{"internal/kube/served/watch.go", "[*DroppedError](err); dropped {", "[*DroppedError](err); dropped || true {"},
	}},
	{name: "a controller starts where its fields are dropped", tests: servedFields, edits: []edit{
		{"internal/kube/served/served.go", "			if drops || ctx.Err() != nil {", "			if ctx.Err() != nil {"},
	}},
	{name: "a controller starts while its API server does not answer", tests: servedFields, edits: []edit{
		{"internal/kube/served/served.go", "if !drops && answered(err) {", "if !drops {"},
	}},
	{name: "an API server that is not ready is not waited for", tests: servedFields, edits: []edit{
		{"internal/kube/served/served.go", "err == nil || ok && refused.Status().Code < http.StatusInternalServerError", "err == nil || ok && refused.Status().Code <= http.StatusNetworkAuthenticationRequired"},
	}},
	{name: "a DPU's driver comes up with its API server alone", tests: nodeDriver, edits: []edit{
		{"internal/kube/mapper.go", "range needed {", "range needed[:0] {"},
	}},
	{name: "a program whose caches are never filled never ends", tests: access, edits: []edit{
		{"internal/kube/ending.go", "	default:\n		return nil\n", "	case err := <-ended:\n		return err\n"},
	}},
	{name: "a program ends before what works in it", tests: access, edits: []edit{
		{"internal/kube/ending.go", "	case <-e.filled:\n		return <-ended\n", "	case <-e.filled:\n		return nil\n"},
	}},
	{name: "a kind that programs know is taken for one that is served", tests: access, edits: []edit{
		{"internal/kube/serves.go", "asked.(*mapper); knows {", "asked.(*mapper); knows && false {"},
	}},
	{name: "a host that asks for volumes by itself comes up with its API server alone", tests: nodePlugin, edits: []edit{
		{"internal/kube/informers.go", "	if err := mapped(cfg, &o); err != nil {\n		return nil, err\n	}\n", ""},
	}},
	{name: "fields in lists are not compared", tests: servedFields, edits: []edit{
		{"internal/kube/served/fields.go", "		walk(t.Elem(), s.Items,", "		walk(t.Elem(), nil,"},
	}},
	{name: "what was compared counts after a change of the schema", tests: servedFields, edits: []edit{
		{"internal/kube/served/served.go", "		if c.compared[gv].address != at.ServerRelativeURL() {", "		if c.compared[gv].address == \"\" {"},
	}},
	{name: "a replica that has lost its role is taken for a primary", tests: servedFields, edits: []edit{
		{"internal/kube/served/guard.go", "if o.Spec.Role == \"\" {", "if o.Spec.Role == \"\" && false {"},
	}},
	{name: "a volume that has lost its replication is taken for one that wants none", tests: servedFields, edits: []edit{
		{"internal/kube/served/guard.go", "o.Spec.Replication == nil && written", "o.Spec.Replication == nil && false && written"},
	}},
	{name: "a volume that has lost its last grant is taken for one that had none", tests: servedFields, edits: []edit{
		{"internal/kube/served/guard.go", "o.Status.LastGrant == nil && written", "o.Status.LastGrant == nil && false && written"},
	}},
	{name: "that a schema drops a field is not waited for", tests: servedFields, edits: []edit{
		{"internal/kube/served/guard.go", "err == nil && time.Since(begin) >= publishes", "err == nil && time.Since(begin) >= 0"},
	}},
	{name: "an API server that does not answer keeps every field", tests: servedFields, edits: []edit{
		{"internal/kube/served/guard.go", "err == nil && time.Since(begin) >= publishes", "time.Since(begin) >= publishes"},
	}},
	{name: "a volume that wants no replicas is taken for one that has lost them", tests: servedFields, edits: []edit{
		{"internal/kube/served/guard.go", "o.Spec.Replication == nil && written(o, \"spec\", \"replication\")", "o.Spec.Replication == nil"},
	}},

	// What csi-provisioner, csi-attacher and the kubelet are told is true.
	{name: "a read-only publication is attached for writing", tests: controllerService, edits: []edit{
		{csiPublish, "		ReadOnly:      req.GetReadonly() || c.ReadOnly,", "		ReadOnly:      c.ReadOnly,"},
	}},
	{name: "a reader's access mode is attached for writing", tests: controllerService, edits: []edit{
		{csiPublish, "		ReadOnly:      req.GetReadonly() || c.ReadOnly,", "		ReadOnly:      req.GetReadonly(),"},
	}},
	{name: "a file system on a block device is given to several writers", tests: server + " " + controllerService, edits: []edit{
		{"pkg/csiserver/request.go", "	if c.Mode == provisioner.Filesystem && c.Access == provisioner.ReadWriteMany {", "	if c.Mode == \"-\" {"},
	}},
	{name: "another access mode than the volume's is confirmed", tests: controllerService, edits: []edit{
		{csiValidate, "		if len(v.AccessModes) > 0 && !slices.Contains(v.AccessModes, m) {", "		if !slices.Contains(csiserver.AccessModes(caps), m) {"},
	}},
	{name: "another context than the volume's is confirmed", tests: controllerService, edits: []edit{
		{csiValidate, "	if d := difference(req.GetVolumeContext(), v.Context); d != \"\" {", "	if d := difference(nil, v.Context); d != \"\" {"},
	}},
	{name: "a volume is made larger than its limit", tests: controllerService, edits: []edit{
		{csiVolume, "	case limit > 0 && size > limit:", "	case limit > size:"},
	}},
	{name: "a volume is made that cannot hold its file system", tests: controllerService, edits: []edit{
		{csiVolume, "		if limit > 0 && limit < least {", "		if limit < 0 {"},
	}},
	{name: "any token continues a list", tests: controllerService, edits: []edit{
		{"pkg/controller/csi/list.go", "	if err != nil || !ok || l.token(after) != token {", "	if err != nil || !ok {"},
	}},
	{name: "a token that is none is an invalid argument", tests: server, edits: []edit{
		{"pkg/csiserver/status.go", "	{provisioner.ErrToken, codes.Aborted},", "	{provisioner.ErrToken, codes.InvalidArgument},"},
	}},
	{name: "volumes of two modes are one", tests: server, edits: []edit{
		{"pkg/csiserver/request.go", "		if p.Mode != \"\" && len(out) > 0 && out[0].Mode != p.Mode {", "		if p.Mode == \"-\" {"},
	}},
	{name: "a volume for one pod is published for a second", tests: nodeService, edits: []edit{
		{nodePublish, "	if c.Access == provisioner.ReadWriteOncePod {", "	if c.Access == \"-\" {"},
	}},
	{name: "a volume is published for writing where it was read-only", tests: nodeService, edits: []edit{
		{nodePublish, "	case readOnly(mp) != ro && mode == provisioner.Filesystem && !readOnly(staged):", "	case mode == \"-\":"},
	}},
	{name: "another volume's mount counts as this one's", tests: nodeService, edits: []edit{
		{nodePublish, "	case haveErr != nil || have != want || mode == provisioner.Filesystem && mp.Root != staged.Root:", "	case haveErr != nil || (have != want || mp.Root != staged.Root) && mode == \"-\":"},
	}},

	{name: "a bind has not the options of its volume", tests: nodeService, edits: []edit{
		{nodePublish, "mountOptions(ofMounts(c.MountFlags), ro)", "mountOptions(nil, ro)"},
	}},
	{name: "a directory that was removed is mounted as it was", tests: nodeService, edits: []edit{
		{nodeMounts, "	if strings.HasSuffix(mp.Root, deleted) {\n		return fmt", "	if t.m == nil {\n		return fmt"},
	}},
	{name: "a directory is shown as a device", tests: nodeService, edits: []edit{
		{nodeContent, "	case c.Mode == provisioner.Block:\n		return csiserver", "	case c.Mode == \"-\":\n		return csiserver"},
	}},
	{name: "an inline volume whose publish failed is left behind", tests: nodeService, edits: []edit{
		{nodePublish, "	if err := s.o.Ephemeral.Remove(ctx, id); err != nil {", "	if err := error(nil); err != nil {"},
	}},

	// A file system grows with its volume, or there are words.
	{name: "a file system that is mounted read-only is grown", tests: nodeService, edits: []edit{
		{nodeExpand, "	if readOnly(mp) {", "	if readOnly(mp) && s == nil {"},
	}},
	{name: "a device that is too small is large enough after a restart", tests: nodeService, edits: []edit{
		{nodeExpand, "	if size < want {", "	if size < 0 {"},
	}},
	{name: "a missing privilege is a fault of the driver", tests: nodeService, edits: []edit{
		{nodeExpand, "	if errors.Is(err, hostdev.ErrPrivilege) {", "	if s == nil && errors.Is(err, hostdev.ErrPrivilege) {"},
	}},
	{name: "a raw device is grown as a file system", tests: nodeService, edits: []edit{
		{nodeExpand, "	if !slices.Contains(csiserver.FSTypes, mp.Type) || req.GetVolumeCapability().GetBlock() != nil {", "	if s == nil {"},
		{nodeExpand, "	if s.isDevice(req.GetVolumePath()) {\n		return size, nil", "	if s == nil {\n		return size, nil"},
	}},
	{name: "a file system that e2fsck could not repair is grown", tests: disk, edits: []edit{
		{diskGrow, "exit.Code&(fsckUncorrected|fsckNotRun) != 0", "exit.Code&fsckNotRun != 0"},
	}},
	{name: "a file system that e2fsck did not look at is grown", tests: disk, edits: []edit{
		{diskGrow, "exit.Code&(fsckUncorrected|fsckNotRun) != 0", "exit.Code&fsckUncorrected != 0"},
	}},
	{name: "a file system grows over the end that is kept free", tests: disk, edits: []edit{
		{diskGrow, "	want := (size - tailBytes) / blockSize\n", "	want := size / blockSize\n"},
	}},
	{name: "a superblock of another file system is believed", tests: disk, edits: []edit{
		{diskGrow, "		if string(b[:4]) != xfsMagic {", "		if string(b[:4]) == \"-\" {"},
	}},
	{name: "a superblock of an ext4 that is none is believed", tests: disk, edits: []edit{
		{diskGrow, "		if binary.LittleEndian.Uint16(s[0x38:]) != ext4Magic {", "		if len(s) == ext4Magic {"},
	}},
	{name: "a thick volume grows over what is free", tests: "./reference/localvendor/records", edits: []edit{
		{"reference/localvendor/records/volume.go", "(r.Provisioning != Thick || size-r.CapacityBytes <= free)", "free >= 0"},
	}},

	// A device is the one that was meant, and is formatted only if it is blank.
	{name: "a signature without a type is none", tests: disk, edits: []edit{
		{diskProbe, "	if s.None() && strings.TrimSpace(out) != \"\" {", "	if out == \"-\" {"},
	}},
	{name: "several signatures are none", tests: disk, edits: []edit{
		{diskProbe, "			return Signature{Ambivalent: true}, nil", "			return Signature{}, nil"},
	}},
	{name: "a device that cannot be read has no signature", tests: disk, edits: []edit{
		{diskProbe, "		case exit.Code == blkidNothing && Readable(path) == nil:", "		case exit.Code == blkidNothing:"},
	}},
	{name: "a UUID of zeros is an identity", tests: disk, edits: []edit{
		{diskNVMe, "err == nil && id != \"\" && id != noUUID {", "err == nil && id != \"\" {"},
	}},
	{name: "a device file of another device is taken", tests: disk, edits: []edit{
		{diskNVMe, "unix.Minor(rdev)); have != want {", "unix.Minor(rdev)); have == \"-\" {"},
	}},
	{name: "another volume at the same place is taken", tests: disk, edits: []edit{
		{"internal/hostdev/identity.go", "		if shown == \"\" || strings.EqualFold(shown, id.UUID) {", "		if shown != \"-\" {"},
	}},
	{name: "the look nearest to the timeout does not decide", tests: probe, edits: []edit{
		{"pkg/node/hostprobe/decide.go", "since+Interval/2 < limits.Timeout", "since < limits.Timeout"},
	}},

	// The attacher asks for what it asked for before, and says when it is done.
	{name: "a repeated attach names the node as it is called now", tests: attacher, edits: []edit{
		{svAttach, "	if nodeID == \"\" {\n", "	if nodeID != \"-\" {\n"},
	}},
	{name: "a refusal undoes an attach that may have had an effect", tests: attacher, edits: []edit{
		{svAttach, "	if first && refused(err) {", "	if (first || !first) && refused(err) {"},
	}},
	{name: "the driver is asked before its finalizer is on", tests: attacher, edits: []edit{
		{svAttach, "		controllerutil.AddFinalizer(sv, Finalizer(r.DriverName))\n", "		_ = controllerutil.AddFinalizer\n"},
	}},
	{name: "the driver is asked by what the cache has", tests: attacher, edits: []edit{
		{svAttach, "	if r.holds(sv) {\n		changed, err", "	if r == nil {\n		changed, err"},
	}},

	// A policy is valid only with all that it names, and its room is there.
	{name: "a policy is valid without a vendor that it names", tests: vendorPolicy, edits: []edit{
		{vendorJudged, "		case !v.Exists:", "		case v.Name == \"-\":"},
		{vendorJudged, "		case !v.StorageClassExists:", "		case v.Exists && !v.StorageClassExists:"},
	}},
	{name: "a policy is valid without a vendor's StorageClass", tests: vendorPolicy, edits: []edit{
		{vendorJudged, "		case !v.StorageClassExists:", "		case v.Name == \"-\":"},
	}},
	{name: "a StorageClass of two vendors has its room twice", tests: vendorPolicy, edits: []edit{
		{"pkg/controller/dpucluster/policy/capacity.go", "	if v.StorageClass == \"\" || classes[v.StorageClass] {", "	if v.StorageClass == \"\" {"},
	}},
	{name: "the room of a policy is not told in the host cluster", tests: hostPolicy, edits: []edit{
		{"pkg/controller/hostcluster/policy/reconciler.go", "		here = mirror.Status.Capacity\n", "		_ = mirror.Status.Capacity\n"},
	}},
	{name: "a policy is valid without a vendor that the host cluster has", tests: hostPolicy, edits: []edit{
		{"pkg/controller/hostcluster/policy/reconciler.go", "	case invalid != \"\":", "	case invalid == \"-\":"},
	}},
	{name: "a replica is placed on the primary's node", tests: choice, edits: []edit{
		{"pkg/placement/choose.go", "		if name == r.Primary {\n			continue\n		}\n", "		if name == \"-\" {\n			continue\n		}\n"},
	}},
	{name: "more nodes than allowed have a volume", tests: choice, edits: []edit{
		{"pkg/placement/choose.go", "	want := max(0, min(r.Replicas, r.MaxShares-1))\n", "	want := max(0, r.Replicas)\n"},
	}},
	{name: "a replica is made where the way to the storage is lost", tests: choice, edits: []edit{
		{"pkg/placement/choose.go", " n.Lost.words(c.Volume),", ""},
	}},
	{name: "a pod comes to a host whose DPU has lost its way to the storage", tests: choice, edits: []edit{
		{"pkg/placement/pod.go", "n.Lost.words(p.volumes...)", "n.Lost.words()"},
	}},
	{name: "a path that is lost speaks for its own volume alone", tests: choice, edits: []edit{
		{"pkg/placement/lost.go", "	case akin != nil:\n", "	case akin != nil && l == nil:\n"},
	}},
	{name: "a pod that was refused for a lost path waits when it is back", tests: "./pkg/scheduler/state", edits: []edit{
		{"pkg/scheduler/state/facts.go", " || regained(old.Lost, now.Lost)", ""},
	}},
	{name: "a volume misses its replica when a path is back", tests: "./pkg/controller/replica", edits: []edit{
		{"pkg/controller/replica/setup.go", " || regained(was, is)", ""},
	}},

	// A volume is staged on a DPU for what is attached to it, and for nothing else.
	{name: "a volume is staged on a DPU for an attachment that is gone", tests: podStaging, edits: []edit{
		{stagingUser, "	case !found || a.UID != u.UID:", "	case !found:"},
	}},
	{name: "a volume is staged on a DPU for the attachment of another", tests: podStaging, edits: []edit{
		{stagingUser, "	case a.Spec.NodeName != p.Spec.NodeName:", "	case a.Spec.NodeName == \"-\":"},
	}},
	{name: "a DPU has a claim's volume staged for the attachment of another claim", tests: podStaging, edits: []edit{
		{stagingUser, " || ref.Name != claim.Name {", " {"},
	}},
	{name: "a pod and a DPU have a volume of one writer at once", tests: podStaging, edits: []edit{
		{stagingAdmit, "		if concurrent && !p.Spec.User.IsPod() && !others[i].Spec.User.IsPod() {", "		if concurrent {"},
	}},
	{name: "two DPUs have a volume of one writer staged without a word", tests: podStaging, edits: []edit{
		{stagingAdmit, "		if concurrent && !p.Spec.User.IsPod() && !others[i].Spec.User.IsPod() {", "		if !p.Spec.User.IsPod() {"},
	}},
	// A DPU is a host's only in the DPU cluster that is served.
	{name: "a DPU of another DPU cluster is named as the host's", tests: "./pkg/controller/dpupairing", edits: []edit{
		{"pkg/controller/dpupairing/decide.go", "cluster != \"\" && d.Cluster != \"\" && d.Cluster != cluster", "false"},
	}},
	{name: "a DPU is named of a cluster that may be another", tests: "./pkg/controller/dpupairing", edits: []edit{
		{"pkg/controller/dpupairing/reconciler.go", "len(all) < 2", "len(all) < 9"},
	}},
	// What is staged over the volume of a claim goes with that, which leaves the node with the pod.
	{name: "a staging pod over a claim ends with its containers", tests: "./pkg/provisioner/pods", edits: []edit{
		{"pkg/provisioner/pods/hold.go", "!slices.ContainsFunc(s.Volumes, leaves)", "true"},
	}},
	{name: "a staging pod over a claim that has done its work is taken away", tests: podStaging, edits: []edit{
		{helperJudge, "	case report != nil && pods.Held(pod):\n", "	case report != nil && pod.Name == \"-\":\n"},
	}},
	{name: "a volume stays staged over a claim whose volume has left the node", tests: podStaging, edits: []edit{
		{helperJudge, "	case pods.Held(s.Pod) && s.Pod.Status.Phase == corev1.PodSucceeded:\n", "	case s.Pod.Name == \"-\":\n"},
	}},
	{name: "a claim's volume may leave before what is staged over it is unstaged", tests: podStaging, edits: []edit{
		{stagingDecide, " && !stays(p, s.pod.Pod):\n", ":\n"},
	}},
	{name: "a claim's volume may leave before an unstaging is tried again", tests: podStaging, edits: []edit{
		{stagingDecide, "	case isReverting, isStuck:\n", "	case isReverting:\n"},
	}},
	{name: "what keeps a claim's volume on the node stays for ever", tests: podStaging, edits: []edit{
		{stagingDecide, "		return p.Status.Pod != nil && pods.Holds(pod)\n", "		return pods.Holds(pod)\n"},
	}},
	{name: "the device of a dead staging pod counts as there", tests: podVendor, edits: []edit{
		{podHost, " && r.Pod == p.Status.Report.PodUID\n", "\n"},
	}},
	{name: "the device of a dead staging pod is kept for the next", tests: podVendor, edits: []edit{
		{podHost, "		r, err = h.replace(ctx, record{Volume: spec.VolumeID, Mode: spec.Mode, Staging: p.UID, Pod: p.Status.Report.PodUID})\n", "		r = record{Volume: spec.VolumeID, Device: namesOf(spec.VolumeID)[0], Mode: spec.Mode, Staging: p.UID, Pod: p.Status.Report.PodUID}\n		err = h.records.Put(keyOf(r.Volume), r)\n"},
	}},
	{name: "a volume is staged for another attachment under the device of the one before", tests: podVendor, edits: []edit{
		{podHost, "		err = h.leave(bounded, spec.VolumeID, want)\n", "		_ = h.leave\n"},
	}},
	{name: "a volume is unstaged under a device of which nothing is known", tests: podVendor, edits: []edit{
		{podHost, "	if err := (devices{h.o.SNAP}).remove(ctx, device); err != nil {\n		return err\n	}\n	if err := h.o.Targets", "	if err := h.o.Targets"},
	}},
	{name: "a device in whose place another is stays for ever", tests: podVendor, edits: []edit{
		{"pkg/node/pods/vendor/sweep.go", "	if r.Before == \"\" {\n", "	if r.Volume != \"\" {\n"},
	}},
	{name: "a device that its plugin lists is there, whatever it says of it", tests: "./pkg/node/dpu", edits: []edit{
		{"pkg/node/dpu/devices/devices.go", "		names = []string{listed[i].Plugin}\n", "		return false\n"},
	}},
	{name: "replicas are made while pods are being started", tests: "./pkg/controller/replica", edits: []edit{
		{"pkg/controller/replica/place.go", "	case wait > 0:\n", "	case wait > yieldFor:\n"},
	}},
	{name: "replicas go while a pod is to get their volume", tests: "./pkg/controller/replica", edits: []edit{
		{"pkg/controller/replica/release.go", "; n >= 0 {", "; n > len(pods) {"},
	}},
	{name: "replicas stay for a pod that goes", tests: "./pkg/controller/replica", edits: []edit{
		{"pkg/controller/replica/release.go", "func remains(p *corev1.Pod) bool { return p.DeletionTimestamp.IsZero() }", "func remains(*corev1.Pod) bool { return true }"},
	}},
	{name: "a vendor makes a volume for more hosts than it allows", tests: "./pkg/controller/dpucluster/volume", edits: []edit{
		{"pkg/controller/dpucluster/volume/vendor.go", "most != nil && *most < want {", "most != nil && *most < 1 {"},
	}},
	{name: "a class that csi-resizer did not find is waited for", tests: "./pkg/controller/dpucluster/volume", edits: []edit{
		{"pkg/controller/dpucluster/volume/change.go", "named >= 0 && (due.IsZero() || p.now.Before(due)) {", "named >= 0 && (due.IsZero() || !due.IsZero()) {"},
	}},
	{name: "a device whose file was removed counts as staged", tests: nodeService, edits: []edit{
		{nodeMounts, "	if strings.HasSuffix(mp.Root, deleted) {\n		return fmt.Errorf(\"%s, which", "	if strings.HasSuffix(mp.Root, \"//gone\") {\n		return fmt.Errorf(\"%s, which"},
	}},

	// A copy is of one instant, and holds up only who writes.
	{name: "a group is copied while its volumes are written", tests: vendor, edits: []edit{
		{vendorCopy, "	if len(pairs) == 1 && !cached || len(written) == 0 {", "	if len(pairs) > 0 {"},
	}},
	{name: "a file system in use is copied while it does not stand still", tests: vendor, edits: []edit{
		{vendorCopy, "			cached = cached || p.have.Contained()", "			cached = false"},
	}},
	{name: "a file system is taken from a node that has it open", tests: vendor, edits: []edit{
		{vendorTarget, "	if !have.ByTarget() {\n		return s.unopened", "	if have.Shared() {\n		return s.unopened"},
	}},
	{name: "a claim's volume is removed as an ephemeral one", tests: vendor + "/ephemeral", edits: []edit{
		{"reference/localvendor/ephemeral/ephemeral.go", " || !have.Ephemeral || have.Name != name {", " || have.Name != name {"},
	}},
	{name: "a copy ends where its data ends", tests: vendor, edits: []edit{
		{"reference/localvendor/files/copy.go", "	if err := dst.Truncate(st.Size()); err != nil {", "	if err := dst.Truncate(0); err != nil {"},
	}},
	{name: "who only reads counts as a writer", tests: vendor, edits: []edit{
		{"reference/localvendor/records/volume.go", "		if !h.ReadOnly && !ReadOnlyModes(h.AccessModes) {", "		if !ReadOnlyModes(h.AccessModes) {"},
	}},
	{name: "a reader's access mode counts as a writer's", tests: vendor, edits: []edit{
		{"reference/localvendor/records/volume.go", "		if !h.ReadOnly && !ReadOnlyModes(h.AccessModes) {", "		if !h.ReadOnly {"},
	}},
	{name: "a replica that waits for its lease hears no host", tests: "./pkg/nodehealth/listener", edits: []edit{
		{"pkg/nodehealth/listener/nodes.go", "NeedLeaderElection() bool { return false }", "NeedLeaderElection() bool { return true }"},
	}},
	{name: "a replica that waits for its lease hears no lease", tests: "./pkg/nodehealth/listener", edits: []edit{
		{"pkg/nodehealth/listener/leases.go", "NeedLeaderElection() bool { return false }", "NeedLeaderElection() bool { return true }"},
	}},
	{name: "a kind that is to be held is listed by the leader alone", tests: access, edits: []edit{
		{"internal/kube/hold.go", "range kinds {", "range kinds[1:] {"},
	}},
	{name: "a lease may end while its leader tries to renew it", tests: access, edits: []edit{
		{"internal/kube/election.go", "e.LeaseDuration <= e.RenewDeadline ||", "e.LeaseDuration < e.RenewDeadline ||"},
	}},
	{name: "a leader that hangs while it ends keeps its lease", tests: access, edits: []edit{
		{"internal/kube/election.go", "ptr.To(endsWithin)", "ptr.To(10*endsWithin)"},
	}},
}
