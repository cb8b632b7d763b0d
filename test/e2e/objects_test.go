//go:build e2e

package e2e

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/test/kit"
)

// claim is a PersistentVolumeClaim to be made.
type claim struct {
	name   string
	class  string
	mode   corev1.PersistentVolumeMode
	access corev1.PersistentVolumeAccessMode
	size   string
	source *corev1.TypedLocalObjectReference
}

func (ns *testNamespace) claim(ctx context.Context, c claim) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	if c.class == "" {
		c.class = "snap-nvme"
	}
	if c.access == "" {
		c.access = corev1.ReadWriteOnce
	}
	if c.mode == "" {
		c.mode = corev1.PersistentVolumeFilesystem
	}
	if c.size == "" {
		c.size = "64Mi"
	}
	o := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: ns.name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &c.class, VolumeMode: &c.mode,
			AccessModes: []corev1.PersistentVolumeAccessMode{c.access}, DataSource: c.source,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(c.size)}},
		},
	}
	Expect(clients.Host.Create(ctx, o)).To(Succeed())
	return o
}

// class makes a StorageClass of the test's own and removes it with the test.
func (ns *testNamespace) class(ctx context.Context, parameters map[string]string) string {
	GinkgoHelper()
	name := fmt.Sprintf("%s-%d", ns.name, len(parameters))
	o := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: name},
		Provisioner: "csi.snap.nvidia.com", Parameters: parameters,
		ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete), AllowVolumeExpansion: ptr.To(true),
	}
	Expect(clients.Host.Create(ctx, o)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { _ = clients.Host.Delete(ctx, o) })
	return name
}

// pod makes a pod on node ("" is anywhere) that uses the claims: file systems
// under /data-<claim>, block devices at /dev/<claim>.
func (ns *testNamespace) pod(ctx context.Context, name, node string, claims ...*corev1.PersistentVolumeClaim) client.ObjectKey {
	GinkgoHelper()
	return ns.podBy(ctx, "", name, node, claims...)
}

// podBy makes a pod that a scheduler other than the cluster's own may place.
func (ns *testNamespace) podBy(ctx context.Context, scheduler, name, node string, claims ...*corev1.PersistentVolumeClaim) client.ObjectKey {
	GinkgoHelper()
	container := corev1.Container{Name: "main", Image: kit.Image, Command: []string{"sleep", "1000000"}}
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns.name},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(1)), SchedulerName: scheduler},
	}
	if node != "" {
		o.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	for _, c := range claims {
		if *c.Spec.VolumeMode == corev1.PersistentVolumeBlock {
			container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: c.Name, DevicePath: "/dev/" + c.Name})
		} else {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: c.Name, MountPath: "/data-" + c.Name})
		}
		o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{Name: c.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name},
		}})
	}
	o.Spec.Containers = []corev1.Container{container}
	Expect(clients.Host.Create(ctx, o)).To(Succeed())
	return client.ObjectKeyFromObject(o)
}

// runs waits until the pod runs and returns it.
func runs(ctx context.Context, key client.ObjectKey) *corev1.Pod {
	GinkgoHelper()
	pod, err := kit.AwaitRunning(ctx, clients.Host, key, "", patience)
	Expect(err).NotTo(HaveOccurred())
	return pod
}

// sh runs a command in a pod and returns what it printed.
func sh(ctx context.Context, key client.ObjectKey, format string, args ...any) string {
	GinkgoHelper()
	out, err := kit.Exec(ctx, bed, key, fmt.Sprintf(format, args...))
	Expect(err).NotTo(HaveOccurred())
	return out
}

// remove deletes an object and waits until it is gone.
func remove(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(clients.Host.Delete(ctx, o))).To(Succeed())
	gone(ctx, o)
}

func gone(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) (client.Object, error) {
		err := clients.Host.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		o.SetManagedFields(nil) // what it waits for is told, if it is not gone in time
		return o, err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeNil())
}

func podObject(key client.ObjectKey) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace}}
}

// volumeOf waits until the claim is bound and returns its DPUVolume's name.
func volumeOf(ctx context.Context, c *corev1.PersistentVolumeClaim) string {
	GinkgoHelper()
	Eventually(func(ctx context.Context) (corev1.PersistentVolumeClaimPhase, error) {
		err := clients.Host.Get(ctx, client.ObjectKeyFromObject(c), c)
		return c.Status.Phase, err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(corev1.ClaimBound))
	return c.Spec.VolumeName
}

// vendorVolume is the reference vendor's id of a DPUVolume: its file.
func vendorVolume(ctx context.Context, volume string) string {
	GinkgoHelper()
	vendor, err := kit.VendorVolume(ctx, clients.DPU, volume)
	Expect(err).NotTo(HaveOccurred())
	return vendor
}

// attachment reads the DPUVolumeAttachment of a volume to a node.
func attachment(ctx context.Context, node, volume string) *storagev1alpha1.DPUVolumeAttachment {
	GinkgoHelper()
	o := &storagev1alpha1.DPUVolumeAttachment{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: node + "-" + volume}, o)).To(Succeed())
	return o
}

// attachedDPU is how a volume is shown to a node, as its attachment tells; nil if
// it is not shown. That is told a moment after SNAP has shown it.
func attachedDPU(node, volume string) func(context.Context) (*storagev1alpha1.AttachedDPU, error) {
	return func(ctx context.Context) (*storagev1alpha1.AttachedDPU, error) {
		o := &storagev1alpha1.DPUVolumeAttachment{}
		err := clients.Host.Get(ctx, attachmentKey(node, volume), o)
		return o.Status.DPU, err
	}
}

// eventsOf joins the messages of the events about an object of a namespace.
func eventsOf(namespace, name string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		var events corev1.EventList
		if err := clients.Host.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return "", err
		}
		out := ""
		for i := range events.Items {
			if events.Items[i].InvolvedObject.Name == name {
				out += events.Items[i].Message + "\n"
			}
		}
		return out, nil
	}
}

func attachmentKey(node, volume string) client.ObjectKey {
	return client.ObjectKey{Namespace: kit.Namespace, Name: node + "-" + volume}
}

// volumesOf lists the DPUVolumes of a policy.
func volumesOf(ctx context.Context, policy string) ([]storagev1alpha1.DPUVolume, error) {
	var list storagev1alpha1.DPUVolumeList
	if err := clients.Host.List(ctx, &list, client.InNamespace(kit.Namespace)); err != nil {
		return nil, err
	}
	var out []storagev1alpha1.DPUVolume
	for i := range list.Items {
		if list.Items[i].Spec.DPUStoragePolicyName == policy {
			out = append(out, list.Items[i])
		}
	}
	return out, nil
}

func policyNamed(name string) *storagev1alpha1.DPUStoragePolicy {
	return &storagev1alpha1.DPUStoragePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: kit.Namespace},
		Spec:       storagev1alpha1.DPUStoragePolicySpec{DPUStorageVendors: []string{"local"}},
	}
}

func snapError(code int, message string) *snaprpc.Error {
	return &snaprpc.Error{Code: code, Message: message}
}
