package main

// The package of drains, and its files.
const (
	dpuDrain = "./pkg/controller/dpudrain"

	drainDecide = "pkg/controller/dpudrain/decide.go"
	drainFind   = "pkg/controller/dpudrain/find.go"
	drainEvict  = "pkg/controller/dpudrain/evict.go"
	drainPass   = "pkg/controller/dpudrain/reconciler.go"
)

// drains are the checks around the drain of a DPU, each switched off.
var drains = []mutation{
	// Drained is True only if nothing can be written through the DPU.
	{name: "a DPU that holds a claim is drained", tests: dpuDrain, edits: []edit{
		{drainFind, "	f.held = slices.Concat(f.held, claims, shown)", "	f.held = slices.Concat(f.held, claims[:0], shown)"},
	}},
	{name: "a DPU with an attachment is drained", tests: dpuDrain, edits: []edit{
		{drainFind, "a.Spec.Role == storagev1alpha1.RoleReplica {", "a.Spec.DPUNodeName == host {"},
	}},
	{name: "a DPU that shows a device is drained", tests: dpuDrain, edits: []edit{
		{drainFind, "!a.IsReplica() && a.Status.DPU.Attached {", "!a.IsReplica() && a.Status.DPU.Attached && dpu == \"\" {"},
	}},
	{name: "a DPU is drained by what a cache lacks", tests: dpuDrain, edits: []edit{
		{drainPass, "	return f, r.find(ctx, f, node.Name, r.Host.Live, r.DPU.Live)", "	return f, r.find(ctx, f, node.Name, r.Host.Client, r.DPU.Client)"},
	}},
	{name: "a DPU is drained while an API server does not answer", tests: dpuDrain, edits: []edit{
		{drainDecide, "	case f.doubt != \"\":", "	case f.doubt != \"\" && f.left():"},
	}},
	{name: "who is on the list of a lost claim does not hold it", tests: "./pkg/writer", edits: []edit{
		{"pkg/writer/claim.go", "		return claim.Status.Holder == dpu || FencedFrom(claim, dpu)", "		return claim.Status.Holder == dpu"},
	}},

	// Nothing is forced, nor done by a wish that was taken back.
	{name: "a pod without a controller is evicted", tests: dpuDrain, edits: []edit{
		{drainEvict, "		if u.ending || u.kept != \"\" {", "		if u.ending {"},
	}},
	{name: "a pod is evicted that took another's name", tests: dpuDrain, edits: []edit{
		{drainEvict, "&metav1.Preconditions{UID: &pod.UID}", "&metav1.Preconditions{UID: &pod.OwnerReferences[0].UID}"},
	}},
	{name: "all pods are evicted at once", tests: dpuDrain, edits: []edit{
		{drainEvict, "		if room <= 0 {", "		if room <= -100 {"},
	}},
	{name: "a host is drained by a wish that was taken back", tests: dpuDrain, edits: []edit{
		{drainPass, "kube.Find(ctx, r.Host.Live, req.NamespacedName, node)", "kube.Find(ctx, r.Host.Client, req.NamespacedName, node)"},
	}},
	{name: "a replica is made on a DPU that is drained", tests: "./pkg/controller/replica", edits: []edit{
		{"pkg/controller/replica/nodes.go", "words := dpu.Spec.Draining(); words != \"\" {", "words := dpu.Spec.Draining(); words == \"-\" {"},
	}},
	{name: "a pod comes to a DPU that is drained", tests: "./pkg/scheduler/...", edits: []edit{
		{"pkg/scheduler/state/facts.go", "Trouble: n.Spec.Draining(), ", ""},
	}},
}
