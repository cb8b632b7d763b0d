package main

const (
	adopt        = "pkg/controller/hostcluster/volume/adopt.go"
	volumes      = "./pkg/controller/hostcluster/volume"
	vendorClaims = "pkg/controller/dpucluster/volume/pass.go"
	vendors      = "./pkg/controller/dpucluster/volume"
)

// adopted are the rules by which what DPF made becomes Moor's.
var adopted = []mutation{
	{name: "a volume is taken over beside what DPF attached", tests: volumes, edits: []edit{
		{adopt, "ref.Name == mirror.Name && byDPF(a) {", "ref.Name == mirror.Name && false {"},
	}},
	{name: "a cache is believed that DPF attached nothing", tests: volumes, edits: []edit{
		{adopt, "r.Clusters.DPU.Live.List(", "r.Clusters.DPU.Client.List("},
	}},
	{name: "what DPF made for another is taken over", tests: volumes, edits: []edit{
		{adopt, "	if !hostcluster.MadeByDPF(mirror, volume) {\n", "	if !hostcluster.MadeByDPF(mirror, volume) && volume == nil {\n"},
	}},
	{name: "a volume does not hear that DPF has detached it", tests: volumes, edits: []edit{
		{adopt, "bool { return byDPF(e.Object) },", "bool { return false },"},
	}},
	{name: "an attachment does not hear that its volume was taken over", tests: sync, edits: []edit{
		{"pkg/controller/hostcluster/attachment/watches.go", "v.Spec.AccessModes, meta.IsStatusConditionTrue(v.Status.Conditions, storagev1alpha1.ConditionDPUVolumeReconciled)}", "v.Spec.AccessModes, meta.IsStatusConditionTrue(nil, storagev1alpha1.ConditionDPUVolumeReconciled)}"},
	}},
	{name: "a copy that DPF made is taken for the volume", tests: severalClusters, edits: []edit{
		{choose, "	case found && hostcluster.MadeByDPF(mirror, v): // DPF", "	case found && v == nil && hostcluster.MadeByDPF(mirror, v): // DPF"},
	}},
	{name: "there is a claim of a volume before it is taken over", tests: sync, edits: []edit{
		{syncRemember, "	if !hostcluster.OwnedBy(owner, volume) {\n", "	if !hostcluster.OwnedBy(owner, volume) && volume == nil {\n"},
	}},
	{name: "a vendor's claim that DPF made for another is taken over", tests: vendors, edits: []edit{
		{vendorClaims, "pvc.Annotations[storagev1alpha1.AnnotationOwnedByDPUVolume] == owner && ", ""},
	}},
	{name: "a vendor's claim of which nothing says whose it is, is taken over", tests: vendors, edits: []edit{
		{vendorClaims, "	return owner != \"\" && pvc", "	return pvc"},
	}},
	{name: "a vendor's claim that has an owner is taken over", tests: vendors, edits: []edit{
		{vendorClaims, " == owner && len(pvc.OwnerReferences) == 0\n", " == owner\n"},
	}},
}
