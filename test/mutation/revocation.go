package main

// The packages of revocations by pods, and their files that are edited more than once.
const (
	podRevocation = "./pkg/controller/pods/revocation"
	podHelper     = "./pkg/controller/pods/helper"

	revocationNext     = "pkg/controller/pods/revocation/next.go"
	revocationFacts    = "pkg/controller/pods/revocation/facts.go"
	revocationRequests = "pkg/controller/pods/revocation/requests.go"
	revocationDecide   = "pkg/controller/pods/revocation/decide.go"
	helperJudge        = "pkg/controller/pods/helper/judge.go"
	stagingDecide      = "pkg/controller/pods/staging/decide.go"
)

// revocations are the checks of a receipt that rests on the success of a pod, each switched off.
var revocations = []mutation{
	// Whose right it ends.
	{name: "a storage is told to revoke whose DPU has let go", tests: right, edits: []edit{
		{ruleReceipt, " || Released(a, claim) {\n		return 0", " {\n		return 0"},
	}},
	{name: "a storage is told to revoke for an attachment made anew", tests: right, edits: []edit{
		{ruleReceipt, "	if !Holds(claim, HolderOf(a)) || !bound(claim)", "	if !named(claim, HolderOf(a)) || !bound(claim)"},
	}},
	{name: "a storage is told to revoke under another epoch", tests: right, edits: []edit{
		{ruleReceipt, " || claim.Status.Epoch != a.Spec.Epoch || Released", " || Released"},
	}},
	{name: "a pod revokes a right that is not being taken", tests: podRevocation, edits: []edit{
		{revocationNext, "	if !writer.InFencing(f.claim, writer.HolderOf(f.attachment)) {", "	if !writer.Held(f.claim) {"},
	}},
	{name: "a pod's word is written where the vendor may be asked again", tests: podRevocation, edits: []edit{
		{revocationNext, "!writer.TakesRevocation(f.attachment, sv.Spec.NodeName) {", "f.attachment.DeletionTimestamp.IsZero() {"},
	}},
	{name: "the success of another attachment's pod counts", tests: podRevocation, edits: []edit{
		{revocationNext, "r.Spec != f.specOf(sv, epoch):", "r.Spec.VolumeName != f.pv.Name:"},
	}},

	// What a pod has come to.
	{name: "a pod that failed is a receipt", tests: podRevocation, edits: []edit{
		{revocationDecide, "	if j.Verdict != helper.Succeeded {", "	if j.Verdict == helper.Waits {"},
	}},
	{name: "a pod that was recorded is a receipt before it has succeeded", tests: podRevocation, edits: []edit{
		{revocationNext, "	case r.Status.Phase != moorv1alpha1.PodRevocationRevoked:", "	case r.Status.Phase == \"\":"},
	}},
	{name: "a pod on the DPU that is revoked is a receipt", tests: podHelper, edits: []edit{
		{helperJudge, "	case pod.Spec.NodeName == c.NotOn:", "	case c.NotOn == \"-\":"},
	}},
	{name: "a pod that was deleted and ended well is a receipt", tests: podHelper, edits: []edit{
		{helperJudge, "	case !pod.DeletionTimestamp.IsZero():\n		return c.failed(\"was deleted by another before", "	case pod.Name == \"-\":\n		return c.failed(\"was deleted by another before"},
	}},
	{name: "a pod that was evicted and ended well is a receipt", tests: podHelper, edits: []edit{
		{helperJudge, "d.Type == corev1.DisruptionTarget && d.Status == corev1.ConditionTrue", "d.Type == \"-\""},
	}},
	{name: "a pod is a receipt of whose containers not all have ended well", tests: podHelper, edits: []edit{
		{helperJudge, "	case !completed(pod):", "	case pod.Name == \"-\":"},
	}},
	{name: "a revocation pod may run on the DPU that is revoked", tests: "./pkg/provisioner/pods", edits: []edit{
		{"pkg/provisioner/pods/pod.go", "			terms[i].MatchFields = append(terms[i].MatchFields, not)", "			_ = not"},
	}},

	// What it was made of.
	{name: "the success of a pod of another template is a receipt", tests: podRevocation, edits: []edit{
		{revocationFacts, " || r.Status.Template != f.provisioner.Provisioner.Revokes():", ":"},
	}},
	{name: "a provisioner that is made anew vouches for what the one before did", tests: podRevocation, edits: []edit{
		{revocationFacts, "	case r.Status.ProvisionerUID != f.provisioner.UID || r", "	case r"},
	}},
	{name: "a driver vouches whose provisioner does not revoke any more", tests: "./pkg/controller/pods/provisioner", edits: []edit{
		{"pkg/controller/pods/provisioner/reconciler.go", "func(d *storagev1.CSIDriver) { vouch(d, s.revokes) })", "func(d *storagev1.CSIDriver) { vouch(d, s.revokes || len(d.Annotations) > 0) })"},
	}},

	// What is staged meanwhile.
	{name: "a storage is told to revoke while the volume is being staged", tests: podRevocation, edits: []edit{
		{revocationFacts, "p.Status.Phase == \"\" || p.Status.Phase == moorv1alpha1.PodStagingStaging:", "p.Name == \"\":"},
	}},
	{name: "a storage is told to revoke beside a staging pod that runs", tests: podRevocation, edits: []edit{
		{revocationFacts, "!podvolume.Finished(pod) && !f.ready(pod) {", "!podvolume.Finished(pod) && pod.Name == \"\" {"},
	}},
	{name: "what is staged for another attachment goes unnoticed", tests: podRevocation, edits: []edit{
		{revocationFacts, "	case p.Spec.User.UID != f.attachment.UID:", "	case p.Spec.User.UID == \"\":"},
	}},
	{name: "a success that is older than a staging is a receipt", tests: podRevocation, edits: []edit{
		{revocationFacts, "!pod.CreationTimestamp.Before(began) {", "pod.Name == \"\" {"},
	}},
	{name: "stagings are not marked before the storage is told", tests: podRevocation, edits: []edit{
		{revocationNext, "	if f.open() != nil {", "	if f.open() != nil && epoch == 0 {"},
	}},
	{name: "a volume that is being revoked is staged", tests: podStaging, edits: []edit{
		{stagingDecide, "	case phase == \"\" && revoked(p) != \"\":", "	case phase == \"-\":"},
	}},
	{name: "a volume that is being revoked is healed", tests: podStaging, edits: []edit{
		{stagingDecide, "	case phase == isBroken && cleared && revoked(p) != \"\":", "	case phase == \"-\":"},
	}},
	{name: "a staging pod of a volume that is being revoked is made late", tests: podStaging, edits: []edit{
		{stagingDecide, "words != \"\" && phase == pods.Staging {", "words == \"-\" {"},
	}},
	{name: "a volume is staged for an attachment that is being deleted", tests: podStaging, edits: []edit{
		{stagingUser, "	case !a.DeletionTimestamp.IsZero():", "	case a.Name == \"-\":"},
	}},

	// How the word is written.
	{name: "the request goes before the storage's word is written", tests: podRevocation, edits: []edit{
		{revocationRequests, "		if err := r.say(ctx, sv, f); err != nil {\n			return err\n		}\n", "		defer func() { _ = r.say(ctx, sv, f) }()\n"},
	}},
	{name: "whether a revocation counts is read from a cache", tests: podRevocation, edits: []edit{
		{revocationFacts, "kube.Find(ctx, r.Live, client.ObjectKey{Namespace: sv.Namespace, Name: a.VolumeName()}, claim)", "kube.Find(ctx, r.Client, client.ObjectKey{Namespace: sv.Namespace, Name: a.VolumeName()}, claim)"},
	}},
	{name: "a vendor that revokes and attaches nothing has no request", tests: "./pkg/controller/dpucluster/attachment", edits: []edit{
		{"pkg/controller/dpucluster/attachment/attach.go", "return required || revokes && (a.Spec.VolumeAttachmentRef != nil || !a.Status.StorageAttached), nil", "return required || revokes && a.Name == \"-\", nil"},
	}},
	{name: "a volume is taken back from its DPU as its vendor begins to revoke", tests: "./pkg/controller/dpucluster/attachment", edits: []edit{
		{"pkg/controller/dpucluster/attachment/attach.go", "return required || revokes && (a.Spec.VolumeAttachmentRef != nil || !a.Status.StorageAttached), nil", "return required || revokes, nil"},
	}},
}
