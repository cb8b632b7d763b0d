package main

const (
	severalRules    = "pkg/controller/hostcluster/several.go"
	severalPlaces   = "pkg/controller/hostcluster/places.go"
	forgetting      = "pkg/controller/hostcluster/forget.go"
	choose          = "pkg/controller/hostcluster/volume/choose.go"
	syncPasses      = "pkg/controller/hostcluster/attachment/reconciler.go"
	snapshotPasses  = "pkg/controller/hostcluster/snapshot/reconciler.go"
	severalClusters = "./pkg/controller/hostcluster"
	snapshots       = "./pkg/controller/hostcluster/snapshot"
	pairing         = "./pkg/controller/dpupairing"
)

// several are the rules by which each object is in one of several DPU clusters.
var several = []mutation{
	{name: "a volume that has lost its status is made in another DPU cluster", tests: severalClusters, edits: []edit{
		{severalRules, "	case begun:\n		return Theirs\n", "	case begun && c.Recorded(v):\n		return Theirs\n"},
	}},
	{name: "a volume that has lost its status waits for ever", tests: severalClusters, edits: []edit{
		{severalRules, "	case !c.Several() || slices.Contains(v.Finalizers, c.Finalizer(storagev1alpha1.FinalizerDPUVolume)):\n", "	case !c.Several():\n"},
	}},
	{name: "who writes over the record of a volume has it made elsewhere", tests: severalClusters, edits: []edit{
		{severalRules, "	case begun:\n		return Theirs\n", "	case begun && !c.Recorded(v):\n		return Theirs\n"},
	}},
	{name: "a volume of which nothing was made keeps its finalizer", tests: severalClusters, edits: []edit{
		{choose, "		return false, 0, r.letGo(ctx, v) // nothing", "		return false, 0, nil // nothing"},
	}},
	{name: "a DPU cluster begins with a volume without a finalizer of its own", tests: severalClusters, edits: []edit{
		{"pkg/controller/hostcluster/volume/reconciler.go", "volume, r.Clusters.Finalizer(storagev1alpha1.FinalizerDPUVolume)); err != nil {", "volume, storagev1alpha1.FinalizerDPUVolume); err != nil {"},
	}},
	{name: "a record of the time of one DPU cluster is not taken up", tests: severalClusters, edits: []edit{
		{choose, "	if !r.Clusters.FromAlone(v) {\n", "	if v != nil {\n"},
	}},
	{name: "a volume of the time of one DPU cluster that is in none of several waits in silence", tests: severalClusters, edits: []edit{
		{choose, "	case v.Status.Phase != storagev1alpha1.DPUVolumeBound: // it has", "	case v.Status.Phase == storagev1alpha1.DPUVolumeBound: // it has"},
	}},
	{name: "of several controllers each puts itself on record", tests: severalClusters, edits: []edit{
		{choose, "	_, err := kube.PatchStatusExact(ctx, r.Clusters.Host.Client, v, func(v *storagev1alpha1.DPUVolume) {\n		if v.Status.State == nil {", "	_, err := kube.PatchStatus(ctx, r.Clusters.Host.Client, v, func(v *storagev1alpha1.DPUVolume) {\n		if v.Status.State == nil {"},
	}},
	{name: "a DPU cluster that does not answer takes volumes", tests: severalClusters, edits: []edit{
		{choose, "	if _, err := r.Clusters.OwnMirror(ctx, v, &storagev1alpha1.Volume{}); err != nil {\n		return 0, err\n	}\n", ""},
	}},
	{name: "a volume waits for ever for its first choice", tests: severalClusters, edits: []edit{
		{choose, "	case !first && left > 0:\n", "	case !first:\n"},
	}},
	{name: "the first DPU cluster takes all volumes", tests: severalClusters, edits: []edit{
		{choose, "	case !first && left > 0:\n", "	case !first && left > firstChoice:\n"},
	}},
	{name: "a volume is made where its policy is not valid", tests: severalClusters, edits: []edit{
		{choose, "	if !usable {\n", "	if !usable && policy == nil {\n"},
	}},
	{name: "a volume is made in a DPU cluster that has none of its places", tests: severalClusters, edits: []edit{
		{choose, "		return len(r.Clusters.Wanted([]map[string]string{place})) > 0, nil\n", "		return true, nil\n"},
	}},
	{name: "a volume that no DPU cluster can make is not looked at again", tests: severalClusters, edits: []edit{
		{choose, "		return unableAgain, r.unchosen(", "		return unableAgain - unableAgain, r.unchosen("},
	}},
	{name: "an attachment is taken for that of the DPU cluster that looks", tests: severalClusters, edits: []edit{
		{syncPasses, "	if err != nil || whose == hostcluster.Theirs {\n		return nil, err\n", "	if err != nil || whose == hostcluster.Theirs && attachment == nil {\n		return nil, err\n"},
	}},
	{name: "an attachment is made before it is on record where", tests: severalClusters, edits: []edit{
		{syncPasses, "r.findDPU, r.recordCluster, r.ensureMirror,", "r.findDPU, r.ensureMirror, r.recordCluster,"},
	}},
	{name: "an attachment is where its volume is, whatever its record says", tests: severalClusters, edits: []edit{
		{severalRules, "	case recorded != \"\":\n		return Theirs, nil\n", ""},
	}},
	{name: "a snapshot is taken in a DPU cluster that has not its volume", tests: snapshots, edits: []edit{
		{snapshotPasses, "	case whose == hostcluster.Unchosen:\n", "	case false:\n"},
	}},
	{name: "a snapshot is taken for that of the DPU cluster that looks", tests: snapshots, edits: []edit{
		{snapshotPasses, "	if err != nil || whose == hostcluster.Theirs {\n", "	if err != nil {\n"},
	}},
	{name: "one of several controllers lets go what the others have copies of", tests: severalClusters, edits: []edit{
		{severalRules, "	return storagev1alpha1.FinalizerDPUCluster + name\n", "	_ = name\n	return alone\n"},
	}},
	{name: "what is valid in one DPU cluster alone is not", tests: severalClusters, edits: []edit{
		{severalRules, "	if len(words) == 0 || one && yes {\n", "	if len(words) == 0 || one && yes && len(list) == 0 {\n"},
	}},
	{name: "a volume is reached from hosts of all DPU clusters", tests: severalClusters, edits: []edit{
		{severalPlaces, "		c.Place(at)\n		out = append(out, at)\n", "		out = append(out, at)\n"},
	}},
	{name: "what another DPU cluster has free is not told", tests: severalClusters, edits: []edit{
		{severalPlaces, "			return in == \"\" || in == c.label()\n", "			return in == \"\" || in != \"\"\n"},
	}},
	{name: "what a DPU cluster has free counts twice", tests: severalClusters, edits: []edit{
		{severalPlaces, "			return in == \"\" || in == c.label()\n", "			return in == \"\"\n"},
	}},
	{name: "what one DPU cluster told alone counts beside what several tell", tests: severalClusters, edits: []edit{
		{severalPlaces, "			return in == \"\" || in == c.label()\n", "			return in == c.label()\n"},
	}},
	{name: "a host of another DPU cluster is taken", tests: pairing, edits: []edit{
		{"pkg/controller/dpupairing/decide.go", "	if node != nil && node.Spec.DPUCluster != \"\" && node.Spec.DPUCluster != cluster {\n", "	if false {\n"},
	}},
	{name: "a DPU cluster is forgotten while its controller may run", tests: severalClusters, edits: []edit{
		{forgetting, "	if found {\n		out = append(out, fmt.Sprintf(\"its snap", "	if found && err != nil {\n		out = append(out, fmt.Sprintf(\"its snap"},
	}},
	{name: "a DPU cluster is forgotten with a volume in it", tests: severalClusters, edits: []edit{
		{forgetting, "bool { return c.Volume(v) == Ours })", "bool { return c.Volume(v) == Ours && v == nil })"},
	}},
	{name: "a DPU cluster is forgotten with hosts in it", tests: severalClusters, edits: []edit{
		{forgetting, "bool { return n.Spec.DPUCluster == c.DPUCluster })", "bool { return n == nil })"},
	}},
	{name: "a DPU cluster is forgotten with an attachment in it", tests: severalClusters, edits: []edit{
		{forgetting, "bool { return a.Status.DPUCluster == c.DPUCluster })", "bool { return a == nil })"},
	}},
	{name: "a DPU cluster is forgotten with a snapshot in it", tests: severalClusters, edits: []edit{
		{forgetting, "bool { return s.Status.DPUCluster == c.DPUCluster })", "bool { return s == nil })"},
	}},
	{name: "what another DPU cluster has said is forgotten too", tests: severalClusters, edits: []edit{
		{forgetting, "return where == c.label()", "return where != \"\""},
	}},
	{name: "what a DPU cluster has said whose name ends so is forgotten too", tests: severalClusters, edits: []edit{
		{forgetting, "return where == c.label()", "return strings.HasSuffix(where, c.label())"},
	}},
}
