//go:build e2e

package install

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/kit"
)

const (
	namespace = "default"
	// volume is the name of a pod's volume, and journal is what is written there.
	volume, journal = "data", "/data/journal"
)

// appendLines appends a number, and says it with the time since the machine's start once the
// medium has acknowledged it, again and again. A line that fails ends the container.
const appendLines = `i=0; while echo $i | dd of=` + journal + ` oflag=append conv=notrunc,fsync 2>/dev/null; do read up idle </proc/uptime; echo $i $up; i=$((i+1)); sleep 0.02; done; exit 1`

func claim(ctx context.Context, name string) {
	GinkgoHelper()
	claimOf(ctx, name, "snap-nvme")
}

func claimOf(ctx context.Context, name, class string) {
	GinkgoHelper()
	Expect(clients.Host.Create(ctx, claimWith(name, class))).To(Succeed())
}

func claimWith(name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: objectMeta(name),
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
		},
	}
}

func bound(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) (corev1.PersistentVolumeClaimPhase, error) {
		c := &corev1.PersistentVolumeClaim{}
		err := clients.Host.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, c)
		return c.Status.Phase, err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(corev1.ClaimBound))
}

// pod runs a command with the volume of a claim, on a host, and returns when it runs.
func pod(ctx context.Context, name, claim, host, command string) *corev1.Pod {
	GinkgoHelper()
	p := &corev1.Pod{ObjectMeta: objectMeta(name), Spec: podSpec(command)}
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: host}
	p.Spec.Volumes = []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	Expect(clients.Host.Create(ctx, p)).To(Succeed())
	p, err := kit.AwaitRunning(ctx, clients.Host, client.ObjectKey{Namespace: namespace, Name: name}, "", patience)
	Expect(err).NotTo(HaveOccurred())
	return p
}

// podSpec is a pod that runs a command with the volume of that name.
func podSpec(command string) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: ptr.To(int64(0)),
		Containers: []corev1.Container{{
			Name: "main", Image: kit.Image, Command: []string{"sh", "-c", command},
			VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: "/data"}},
		}},
	}
}

// acknowledged are the lines that a pod has said so far.
func acknowledged(ctx context.Context, name string) ([]Written, error) {
	client, err := kubernetes.NewForConfig(bed.HostConfig())
	if err != nil {
		return nil, err
	}
	log, err := client.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return ReadWritten(string(log))
}

// writes waits until a pod has written more, and returns all that it has.
func writes(ctx context.Context, name string) []Written {
	GinkgoHelper()
	before, err := acknowledged(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	var now []Written
	Eventually(func(ctx context.Context) (int, error) {
		var err error
		now, err = acknowledged(ctx, name)
		return len(now), err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeNumerically(">", len(before)+10), "the pod writes")
	return now
}

func objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace}
}
