package staging

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestExcludes: each access mode against another staging of the volume.
func TestExcludes(t *testing.T) {
	const none, pod, node = "", "volume pv is ReadWriteOncePod, and pod default/other on node ", "volume pv is ReadWriteOnce, and pod default/other has it on node m"
	rwo, rox, rwx, rwop := corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod
	for name, tt := range map[string]struct {
		modes     []corev1.PersistentVolumeAccessMode
		node, pod string
		readOnly  bool
		want      string
	}{
		"one writer, the same node":                  {[]corev1.PersistentVolumeAccessMode{rwo}, "n", "other", false, none},
		"one writer, another node":                   {[]corev1.PersistentVolumeAccessMode{rwo}, "m", "other", false, node},
		"one writer, another node, both read":        {[]corev1.PersistentVolumeAccessMode{rwo}, "m", "other", true, node},
		"one writer or readers, both read":           {[]corev1.PersistentVolumeAccessMode{rwo, rox}, "m", "other", true, none},
		"one writer or readers, both write":          {[]corev1.PersistentVolumeAccessMode{rwo, rox}, "m", "other", false, node},
		"readers":                                    {[]corev1.PersistentVolumeAccessMode{rox}, "m", "other", true, none},
		"many writers":                               {[]corev1.PersistentVolumeAccessMode{rwo, rwx}, "m", "other", false, none},
		"one pod, the same node":                     {[]corev1.PersistentVolumeAccessMode{rwop}, "n", "other", false, pod + "n has it"},
		"one pod, another node":                      {[]corev1.PersistentVolumeAccessMode{rwop}, "m", "other", false, pod + "m has it"},
		"one pod, which asks again on the same node": {[]corev1.PersistentVolumeAccessMode{rwop}, "n", "user", false, none},
	} {
		p, o := stagingOf("p", "n", "user"), stagingOf("o", tt.node, tt.pod)
		p.Spec.ReadOnly, o.Spec.ReadOnly = tt.readOnly, tt.readOnly
		for _, concurrent := range []bool{false, true} { // which is about DPUs alone
			if got := excludes(p, tt.modes, concurrent, []moorv1alpha1.PodStaging{*o}); got != tt.want {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		}
		if got := excludes(p, tt.modes, false, nil); got != "" {
			t.Errorf("%s, alone: %q", name, got)
		}
	}
}

// TestExcludesDPUs: DPUs have a volume of one writer at once if its pods are concurrent, and no pod has it
// beside a DPU.
func TestExcludesDPUs(t *testing.T) {
	for name, tt := range map[string]struct {
		asks, has  moorv1alpha1.StagingUserKind
		concurrent bool
		want       string
	}{
		"two DPUs":               {moorv1alpha1.AttachmentUser, moorv1alpha1.AttachmentUser, false, "volume pv is ReadWriteOnce, and VolumeAttachment default/other has it on node m"},
		"two DPUs, concurrently": {moorv1alpha1.AttachmentUser, moorv1alpha1.AttachmentUser, true, ""},
		"a DPU beside a pod":     {moorv1alpha1.AttachmentUser, moorv1alpha1.PodUser, true, "volume pv is ReadWriteOnce, and pod default/other has it on node m"},
		"a pod beside a DPU":     {moorv1alpha1.PodUser, moorv1alpha1.AttachmentUser, true, "volume pv is ReadWriteOnce, and VolumeAttachment default/other has it on node m"},
		"pods that say no kind":  {"", "", true, "volume pv is ReadWriteOnce, and pod default/other has it on node m"},
	} {
		p, o := stagingOf("p", "n", "user"), stagingOf("o", "m", "other")
		p.Spec.User.Kind, o.Spec.User.Kind = tt.asks, tt.has
		if got := excludes(p, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, tt.concurrent, []moorv1alpha1.PodStaging{*o}); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// attach attaches the volume to a DPU: VolumeAttachment attachment of Volume v, whose claim it is.
func (s *fixture) attach(dpu string) {
	v, a := kubetest.Volume("v", "gold"), kubetest.VolumeAttachment("attachment", "v", dpu)
	v.Spec.Volume.CSIReference.PVCRef = &storagev1alpha1.ObjectRef{Name: "claim"}
	v.Namespace, a.Namespace, a.UID = metav1.NamespaceDefault, metav1.NamespaceDefault, "attachment"
	s.Add(v, a)
}

// attached is a staging for that.
func attached(name string) *moorv1alpha1.PodStaging {
	p := stagingOf(name, "n", "attachment")
	p.Spec.User.Kind = moorv1alpha1.AttachmentUser
	return p
}

// TestDPU: a volume is staged on a DPU for a VolumeAttachment that is there, and for no other.
func TestDPU(t *testing.T) {
	change := func(o client.Object, s *fixture, how func(client.Object)) { kubetest.Change(s.Cluster, o, how) }
	a, v := kubetest.VolumeAttachment("attachment", "", ""), kubetest.Volume("v", "")
	a.Namespace, v.Namespace = metav1.NamespaceDefault, metav1.NamespaceDefault
	for name, tt := range map[string]struct {
		change func(*fixture)
		words  string
	}{
		"all well":           {func(*fixture) {}, ""},
		"no such attachment": {func(s *fixture) { s.Remove(a) }, "VolumeAttachment default/attachment, for which the volume is asked for, does not exist"},
		"another one by now": {func(s *fixture) {
			s.Remove(a)
			other := kubetest.VolumeAttachment("attachment", "v", "n")
			other.Namespace = metav1.NamespaceDefault
			s.Add(other)
		}, "or is another one by now"},
		"which ends": {func(s *fixture) {
			change(a, s, func(o client.Object) { o.SetFinalizers([]string{"test/kept"}) })
			s.Remove(a)
		}, "is being deleted: nothing is staged for it any more"},
		"of another DPU": {func(s *fixture) {
			change(a, s, func(o client.Object) { o.(*storagev1alpha1.VolumeAttachment).Spec.NodeName = "m" })
		}, `is on node "m", and node n asks for its volume`},
		"of no Volume": {func(s *fixture) {
			change(a, s, func(o client.Object) { o.(*storagev1alpha1.VolumeAttachment).Spec.Source.VolumeRef = nil })
		}, "names no Volume"},
		"of a Volume that is gone": {func(s *fixture) { s.Remove(v) }, "is of Volume v, whose claim is not default/claim"},
		"of a Volume without claim": {func(s *fixture) {
			change(v, s, func(o client.Object) { o.(*storagev1alpha1.Volume).Spec.Volume.CSIReference.PVCRef = nil })
		}, "is of Volume v, whose claim is not default/claim"},
		"of a Volume of another one": {func(s *fixture) {
			change(v, s, func(o client.Object) { o.(*storagev1alpha1.Volume).Spec.Volume.CSIReference.PVCRef.Name = "other" })
		}, "is of Volume v, whose claim is not default/claim"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, both, nil)
			s.attach("n")
			tt.change(s)
			s.Add(attached("s"))
			s.settle("s")
			if tt.words == "" {
				s.wants("s", isStaged, "")
				return
			}
			s.wants("s", isFailed, tt.words)
			if got := s.Reasons(); got != "VolumeFailed" {
				t.Errorf("told %q", got)
			}
		})
	}
}

// TestRefused: what is refused is said in words, to the status and to the user's pod, and leaves
// nothing to undo.
func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		spec   string
		change func(*fixture)
		words  string
	}{
		"no such volume": {both, func(s *fixture) { s.Remove(kubetest.PV(volume, "", "")) }, "PersistentVolume pv does not exist"},
		"a volume of another driver": {both, func(s *fixture) {
			kubetest.Change(s.Cluster, kubetest.PV(volume, "", ""), func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "q" })
		}, "PersistentVolume pv is none of provisioner p"},
		"no such claim":           {both, func(s *fixture) { s.Remove(kubetest.PVC("claim", "")) }, "is not bound to a claim that is there"},
		"the provisioner is gone": {both, func(s *fixture) { s.Remove(&pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}}) }, "PavProvisioner p does not exist"},
		"the provisioner is deleted": {both, func(s *fixture) {
			p := &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			kubetest.Change(s.Cluster, p, func(p *pavv1alpha1.PavProvisioner) { p.Finalizers = []string{pavv1alpha1.FinalizerProvisioner} })
			s.Remove(p)
		}, "PavProvisioner p is being deleted"},
		"a static volume of a provisioner that has none": {bare, (*fixture).static, "its provisioningModes are without Static"},
		"a static volume that breaks the rules": {both, func(s *fixture) {
			s.static()
			kubetest.Change(s.Cluster, kubetest.PV(volume, "", ""), func(v *corev1.PersistentVolume) { v.Spec.MountOptions = []string{"ro"} })
		}, "mountOptions are not for it"},
		"a node without the labels": {bare, func(s *fixture) {
			kubetest.Change(s.Cluster, kubetest.Node("n", nil), func(n *corev1.Node) { n.Labels = nil })
		}, "provisioner p does not stage volumes on node n"},
		"a volume that is being removed": {both, func(s *fixture) {
			kubetest.Change(s.Cluster, &moorv1alpha1.PodVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}}, func(v *moorv1alpha1.PodVolume) { v.Status.Phase = moorv1alpha1.PodVolumeDeleting })
		}, "volume pv is not there"},
		"a pod of another namespace": {both, func(s *fixture) {
			s.Remove(s.get(name))
			p := stagingOf(name, "n", "user")
			p.Spec.User.Namespace = "elsewhere"
			s.Add(p)
		}, "bound to a claim in namespace default, which pod elsewhere/user is not in"},
		"a pod that is not there": {both, func(s *fixture) { s.Remove(kubetest.Pod("user", "n", "claim")) }, "pod default/user, for which the volume is asked for, does not exist"},
		"a pod that is another one by now": {both, func(s *fixture) {
			s.Remove(kubetest.Pod("user", "n", "claim"))
			s.Add(kubetest.Pod("user", "n", "claim"))
		}, "or is another one by now"},
		"a pod of another node": {both, func(s *fixture) {
			s.Remove(s.get(name))
			s.Add(stagingOf(name, "n", "other"))
		}, `pod default/other is on node "m", and node n asks for its volume`},
		"a pod that does not use it": {both, func(s *fixture) {
			kubetest.Change(s.Cluster, kubetest.Pod("user", "n", "claim"), func(p *corev1.Pod) { p.Spec.Volumes = nil })
		}, "pod default/user does not use claim default/claim"},
		"another node has it": {both, func(s *fixture) {
			s.Add(stagingOf("first", "m", "other"))
			s.settle("first")
		}, "volume pv is ReadWriteOnce, and pod default/other has it on node m"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, tt.spec, nil)
			s.Add(stagingOf("s", "n", "user"))
			tt.change(s)
			before := len(s.made)
			s.settle("s")
			s.wants("s", isFailed, tt.words)
			if got := s.Reasons(); got != "VolumeFailed" || len(s.made) != before {
				t.Errorf("the pod was told %q, and %d pods were made", got, len(s.made)-before)
			}
			s.delete("s")
			s.clear = false // the node has nothing to clear
			s.settle("s")
			if s.get("s") != nil {
				t.Errorf("%+v is left", s.get("s").Status)
			}
		})
	}
}

// TestOneBegins: of two stagings of a volume for one node one begins, also if the cache shows neither.
func TestOneBegins(t *testing.T) {
	s := newFixture(t, both, behavior{"staging": "hang"})
	s.Add(stagingOf("one", "n", "user"), stagingOf("two", "m", "other"))
	for _, name := range []string{"one", "two"} {
		if _, err := s.pass(name); err != nil { // the finalizer
			t.Fatal(err)
		}
	}
	var old moorv1alpha1.PodStagingList
	if err := s.Direct.List(t.Context(), &old); err != nil {
		t.Fatal(err)
	}
	s.CacheLists(&old)
	s.settle("one")
	s.settle("two")
	s.wants("one", isStaging, "")
	s.wants("two", isFailed, "volume pv is ReadWriteOnce, and pod default/user has it on node n")
}

// TestStatic: a static volume is staged, and a block device may have any size.
func TestStatic(t *testing.T) {
	s := newFixture(t, both, behavior{"staging": "small"})
	s.static()
	kubetest.Change(s.Cluster, kubetest.PV(volume, "", ""), func(v *corev1.PersistentVolume) {
		v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("7Gi")}
	})
	s.Add(stagingOf(name, "n", "user"))
	s.settle(name)
	s.wants(name, isStaged, "")
}
