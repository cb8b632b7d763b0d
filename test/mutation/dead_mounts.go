package main

// The packages of dead mounts, and their files that are edited more than once.
const (
	deadMount    = "./pkg/controller/deadmount"
	mountWatcher = "./pkg/node/csi/deadmounts"

	nodeMounts     = "pkg/node/csi/mounts.go"
	nodeStage      = "pkg/node/csi/stage.go"
	deadMountPass  = "pkg/controller/deadmount/reconciler.go"
	deadMountRule  = "pkg/controller/deadmount/decide.go"
	mountWatcherGo = "pkg/node/csi/deadmounts/watcher.go"
)

// deadMounts are the checks around mounts that are of no use any more, each switched off.
var deadMounts = []mutation{
	// A pod is given no dead mount, and no dead mount is taken for a new one.
	{name: "a file system that the kernel has given up is shown", tests: nodeService, edits: []edit{
		{nodeMounts, "	if why := hostdev.GivenUp(mp.Opts, mp.Super); why != \"\" {", "	if why := hostdev.GivenUp(mp.Opts, mp.Super); why == \"-\" {"},
	}},
	{name: "a read-only bind counts as given up", tests: disk, edits: []edit{
		{"internal/hostdev/filesystem.go", "	case has(\"ro\") && slices.Contains(mount, \"rw\"):", "	case slices.Contains(mount, \"ro\") != has(\"ro\"):"},
	}},
	{name: "a file system is mounted anew under another pod", tests: nodeService, edits: []edit{
		{nodePublish, "mp.shows(staged) && mp.Path != source && mp.Path != target {", "mp.shows(staged) && mp.Path == source && mp.Path == target {"},
	}},
	{name: "a mount of what was given up counts as a new one", tests: nodeService, edits: []edit{
		{nodeStage, "	if why == \"\" {\n		return nil", "	if why != \"-\" {\n		return nil"},
	}},
	{name: "a device that hangs is dead", tests: nodeService, edits: []edit{
		{nodeMounts, "	if dead := t.dead(path, mp); !errors.Is(dead, hostdev.ErrHung) {", "	if dead := t.dead(path, mp); dead != nil {"},
	}},
	{name: "a device that hangs is detached lazily", tests: nodeService, edits: []edit{
		{nodeMounts, "	if dead == nil || errors.Is(dead, hostdev.ErrHung) {", "	if dead == nil {"},
	}},
	{name: "a device that hangs is read a second time", tests: disk, edits: []edit{
		{"internal/hostdev/filesystem.go", "	if now := r.running[number]; now != nil {", "	if now := r.running[number]; now != nil && number == 0 {"},
	}},

	// What a host tells is so, and names its own pods.
	{name: "what is seen once is told", tests: mountWatcher, edits: []edit{
		{mountWatcherGo, "		if f.looks < inARow {", "		if f.looks < 1 {"},
	}},
	{name: "another driver's mounts are told", tests: mountWatcher, edits: []edit{
		{mountWatcherGo, "ok && d.Driver == w.o.Driver {", "ok {"},
	}},
	{name: "a mount about which nothing is answered is well", tests: mountWatcher, edits: []edit{
		{mountWatcherGo, "		return before, known\n", "		return before, false\n"},
	}},

	// Only the pods that have it are made anew, a bounded number of times.
	{name: "a pod without the volume is made anew", tests: deadMount, edits: []edit{
		{deadMountPass, "		if !slices.Contains(volumes, d.Volume) {", "		if volumes == nil && len(d.Volume) == 0 {"},
	}},
	{name: "a pod is made anew that the host has not named", tests: deadMount, edits: []edit{
		{deadMountPass, "		if !slices.Contains(d.Pods, p.UID) || ", "		if "},
	}},
	{name: "a pod that came after is made anew", tests: deadMount, edits: []edit{
		{deadMountPass, "		if found && live.UID == p.UID && live", "		if found && live"},
	}},
	{name: "a pod that nothing makes anew is deleted", tests: deadMount, edits: []edit{
		{"internal/podvolume/returns.go", "	return owner != nil && owner.Kind", "	return owner == nil || owner.Kind"},
	}},
	{name: "pods are deleted before that is counted", tests: deadMount, edits: []edit{
		{deadMountPass, "v.Status.Restarts = what.restart }); err != nil {\n		return 0, err", "v.Status.Restarts = what.restart }); err != nil {\n		return 0, errors.Join(err, r.restart(ctx, d, returning))"},
	}},
	{name: "pods are deleted without a bound", tests: deadMount, edits: []edit{
		{deadMountRule, "	if int(count) >= len(pauses) {", "	if count = min(count, 4); int(count) >= len(pauses) {"},
	}},
	{name: "pods are deleted without a pause", tests: deadMount, edits: []edit{
		{deadMountRule, "count > 0 && wait > 0 {", "count > 9 && wait > 0 {"},
	}},
	{name: "the pods of a dead host are made anew", tests: deadMount, edits: []edit{
		{deadMountPass, "	if found && hostAlive(node) {", "	if found {"},
	}},

	// What is staged on one path is not taken from there by another one.
	{name: "a volume is staged on two paths of a node", tests: nodeService, edits: []edit{
		{nodeStage, "	if err != nil || other == \"\" {\n		return err", "	if err != nil || other != \"-\" {\n		return err"},
	}},
	{name: "the unstage of one path closes what is staged on another", tests: nodeService, edits: []edit{
		{nodeStage, "err != nil || other != \"\" {\n			return err", "err != nil || other == \"-\" {\n			return err"},
	}},
	{name: "a mount that has the name of a volume counts as its staging", tests: nodeService, edits: []edit{
		{nodeStage, "what.isOn(mp.Path, mp); err == nil && same {", "what.isOn(mp.Path, mp); err != nil || same {"},
	}},
	{name: "what pods are shown counts as a staging", tests: nodeService, edits: []edit{
		{nodeStage, "_, ofPod := kubelet.Parse(mp.Path); ofPod ||", "_, ofPod := kubelet.Parse(mp.Path); ofPod && mp.Path == \"\" ||"},
	}},
	{name: "the platform's mount of a directory counts as a staging", tests: nodeService, edits: []edit{
		{nodeContent, "err == nil && mp.Path != d.path && mp.Filesystem", "err == nil && mp.Filesystem"},
	}},
}
