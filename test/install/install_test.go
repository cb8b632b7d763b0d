//go:build e2e

package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

const (
	twoClusters = "## Two plain clusters"
	failover    = "## Failover"
	upgrading   = "## Upgrading"
	theVolumes  = "### The volumes"
	thePrograms = "### The programs"
	everything  = "### Everything"
	hanging     = "### What hangs"
)

// settled waits until each Deployment and DaemonSet of the chart's releases runs as it is wanted.
func settled(ctx context.Context) {
	GinkgoHelper()
	for _, c := range allClusters() {
		settledIn(ctx, c, kit.Namespace)
	}
}

// settledIn waits until each of a namespace does.
func settledIn(ctx context.Context, c client.Client, namespace string) {
	GinkgoHelper()
	Eventually(unsettled).WithContext(ctx).WithArguments(c, namespace).WithTimeout(patience).WithPolling(tick).Should(Succeed(), "what is installed runs")
}

func unsettled(ctx context.Context, c client.Client, namespace string) error {
	var deployments appsv1.DeploymentList
	var daemons appsv1.DaemonSetList
	if err := errors.Join(c.List(ctx, &deployments, client.InNamespace(namespace)), c.List(ctx, &daemons, client.InNamespace(namespace))); err != nil {
		return err
	}
	if len(deployments.Items)+len(daemons.Items) == 0 {
		return errors.New("there is none")
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if s := d.Status; s.ObservedGeneration != d.Generation || s.UpdatedReplicas != *d.Spec.Replicas || s.AvailableReplicas != s.UpdatedReplicas || s.Replicas != s.UpdatedReplicas {
			return fmt.Errorf("Deployment %s: %+v\n%s", d.Name, s, story(ctx, c, namespace))
		}
	}
	for i := range daemons.Items {
		d := &daemons.Items[i]
		if s := d.Status; s.ObservedGeneration != d.Generation || s.DesiredNumberScheduled == 0 || s.UpdatedNumberScheduled != s.DesiredNumberScheduled || s.NumberAvailable != s.DesiredNumberScheduled {
			return fmt.Errorf("DaemonSet %s: %+v\n%s", d.Name, s, story(ctx, c, namespace))
		}
	}
	return nil
}

// story is that of each pod of a namespace that is not ready.
func story(ctx context.Context, c client.Client, namespace string) string {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return err.Error()
	}
	var out strings.Builder
	for i := range pods.Items {
		if !kit.Ready(&pods.Items[i]) {
			fmt.Fprintf(&out, "%s\n%+v\n", kit.Story(ctx, c, &pods.Items[i]), pods.Items[i].Status.ContainerStatuses)
		}
	}
	return out.String()
}

// vendor installs the reference vendor by its manifests, and says in the host cluster that
// volumes may be had of it.
func vendor(ctx context.Context) {
	GinkgoHelper()
	for _, of := range bed.DPUClusters() {
		run(ctx, of.Cluster, "kubectl apply --server-side -f deploy/dpu/local-vendor.yaml -f deploy/dpu/workloads/local-vendor-controller.yaml -f deploy/dpu/workloads/local-vendor-plugin.yaml\n")
		connectTarget(ctx, of)
	}
	run(ctx, "host", "kubectl apply --server-side -f deploy/examples/storage.yaml\n")
}

// images are those of the programs of Moor's release, by pod.
func images(ctx context.Context, c client.Client) map[string]string {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(c.List(ctx, &pods, client.InNamespace(kit.Namespace), client.MatchingLabels{"app.kubernetes.io/instance": "moor"})).To(Succeed())
	out := map[string]string{}
	for i := range pods.Items {
		for _, container := range pods.Items[i].Spec.Containers {
			if strings.HasPrefix(container.Image, registry) {
				out[pods.Items[i].Name] = container.Image
			}
		}
	}
	return out
}

// offHosts holds the credentials of the DPU cluster to lie on no host whose volumes they can give
// to another.
func offHosts(ctx context.Context) {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(clients.Host.List(ctx, &pods, client.InNamespace(kit.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "snap-host-controller"})).To(Succeed())
	Expect(pods.Items).To(HaveLen(2))
	for i := range pods.Items {
		Expect(pods.Items[i].Spec.NodeName).To(Equal(bed.Nodes()[len(bed.Nodes())-1]))
	}
}

// undisturbed holds a pod to be the one that it was, with no container started again.
func undisturbed(ctx context.Context, name string, uid types.UID) {
	GinkgoHelper()
	p := &corev1.Pod{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p)).To(Succeed())
	Expect(p.UID).To(Equal(uid))
	Expect(p.Status.ContainerStatuses[0].RestartCount).To(BeZero())
}

// again installs both releases as the page does. The credentials are made anew: the account that
// they were of went with the release.
func again(ctx context.Context) {
	GinkgoHelper()
	follow(ctx, twoClusters, withEmulation)
	settled(ctx)
}

// report tells what was measured.
func report(format string, args ...any) {
	AddReportEntry(fmt.Sprintf(format, args...))
	fmt.Printf("measured: "+format+"\n", args...)
}

var _ = Describe("the chart", Ordered, func() {
	var uid types.UID

	It("is installed by the page, and a pod writes", func(ctx context.Context) {
		begin := time.Now()
		follow(ctx, twoClusters, withEmulation)
		installed := time.Now()
		vendor(ctx)
		claim(ctx, "first")
		bound(ctx, "first")
		report("from the first helm install to the first claim that is bound: %.1f s, of which the commands of the page took %.1f s", time.Since(begin).Seconds(), installed.Sub(begin).Seconds())
		settled(ctx)
		uid = pod(ctx, "writer", "first", bed.Nodes()[0], appendLines).UID
		report("to the first pod that runs with it: %.1f s", time.Since(begin).Seconds())
		writes(ctx, "writer")
		offHosts(ctx)
		Expect(images(ctx, clients.Host)).To(HaveEach(HaveSuffix(thisTag)))
		Expect(images(ctx, clients.DPU)).To(HaveEach(HaveSuffix(thisTag)))
	}, NodeTimeout(3*patience))

	It("is upgraded while the pod writes", func(ctx context.Context) {
		before := writes(ctx, "writer")
		begin := time.Now()
		follow(ctx, upgrading, func(s Step) string {
			Expect(s.Script).To(ContainSubstring("--reset-then-reuse-values"))
			return strings.ReplaceAll(s.Script, "--reset-then-reuse-values", "--reset-then-reuse-values --set image.tag=next")
		})
		settled(ctx)
		took := time.Since(begin)
		lines := writes(ctx, "writer")
		report("an upgrade of both releases took %.1f s; the longest time between two acknowledged writes was %.2f s, and before it %.2f s", took.Seconds(),
			Longest(lines, len(before)).Seconds(), Longest(before, 0).Seconds())
		for _, c := range []client.Client{clients.Host, clients.DPU} {
			// A pod of before that ends is not counted as one of its Deployment any more.
			Eventually(images).WithArguments(c).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(HaveEach(HaveSuffix(nextTag)))
			Expect(len(images(ctx, c))).To(BeNumerically(">=", 5))
		}
		undisturbed(ctx, "writer", uid)
		Expect(Longest(lines, len(before))).To(BeNumerically("<", 5*time.Second))
		claim(ctx, "second")
		bound(ctx, "second")
		content, err := kit.Exec(ctx, bed, client.ObjectKey{Namespace: namespace, Name: "writer"}, "cat "+journal)
		Expect(err).NotTo(HaveOccurred())
		Expect(Complete(content, lines)).To(Succeed())
	}, NodeTimeout(3*patience))

	It("fails over when the host of a pod loses power, and disturbs no other pod", func(ctx context.Context) {
		follow(ctx, failover, nil)
		settled(ctx)
		probed(ctx, bed.Nodes()[:2]...)
		failsOver(ctx, bed.Nodes()[1], bed.Nodes()[0])
		writes(ctx, "writer")
		undisturbed(ctx, "writer", uid)
	}, NodeTimeout(3*patience))

	It("has second schedulers place pods with volumes, by their manifests", secondSchedulers, NodeTimeout(3*patience))

	It("has pods as another vendor of DPUs, by their manifests", podsAsVendor, NodeTimeout(3*patience))

	It("leaves volumes and data when it is uninstalled, and goes on with them when it is installed again", func(ctx context.Context) {
		before := writes(ctx, "writer")
		follow(ctx, thePrograms, nil)
		for _, c := range []client.Client{clients.Host, clients.DPU} {
			Eventually(images).WithArguments(c).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
		}
		writes(ctx, "writer")
		var volumes storagev1alpha1.DPUVolumeList
		var attachments storagev1alpha1.DPUVolumeAttachmentList
		var claims moorv1alpha1.WriterClaimList
		Expect(errors.Join(clients.Host.List(ctx, &volumes), clients.Host.List(ctx, &attachments), clients.DPU.List(ctx, &claims))).To(Succeed())
		Expect(volumes.Items).To(HaveLen(2))
		Expect(attachments.Items).To(HaveLen(1))
		Expect(claims.Items).NotTo(BeEmpty())
		again(ctx)
		lines := writes(ctx, "writer")
		undisturbed(ctx, "writer", uid)
		report("while both releases were uninstalled and installed again the longest time between two acknowledged writes was %.2f s", Longest(lines, len(before)).Seconds())
		claim(ctx, "third")
		bound(ctx, "third")

		Expect(clients.Host.Delete(ctx, &corev1.Pod{ObjectMeta: objectMeta("writer")})).To(Succeed())
		pod(ctx, "reader", "first", bed.Nodes()[1], "sleep 1000000")
		content, err := kit.Exec(ctx, bed, client.ObjectKey{Namespace: namespace, Name: "reader"}, "cat "+journal)
		Expect(err).NotTo(HaveOccurred())
		Expect(Complete(content, lines)).To(Succeed(), "on another host, after the last line that was seen")
	}, NodeTimeout(3*patience))

	It("is removed in the page's order, and nothing hangs", func(ctx context.Context) {
		Expect(clients.Host.Delete(ctx, &corev1.Pod{ObjectMeta: objectMeta("reader")})).To(Succeed())
		for _, name := range []string{"first", "second", "third"} {
			Expect(clients.Host.Delete(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(name)})).To(Succeed())
		}
		follow(ctx, theVolumes, nil)
		follow(ctx, thePrograms, nil)
		follow(ctx, everything, nil)
		noKinds(ctx, "storage.moor.dev", "storage.dpu.nvidia.com")
		files, err := bed.Exec(ctx, bed.DPUs()[0], "sh", "-ec", "ls "+localTarget+" | grep '[.]img$' || true")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(files)).To(BeEmpty(), "the vendor has removed all volumes")
	}, NodeTimeout(3*patience))

	It("is removed by force where its programs are gone before its volumes", func(ctx context.Context) {
		again(ctx)
		run(ctx, "host", "kubectl apply --server-side -f deploy/examples/storage.yaml\n")
		claim(ctx, "last")
		bound(ctx, "last")
		follow(ctx, thePrograms, nil)
		follow(ctx, everything, nil)
		follow(ctx, hanging, nil)
		noKinds(ctx, "storage.moor.dev", "storage.dpu.nvidia.com")
	}, NodeTimeout(3*patience))
})

// noKinds waits until no CRD of some API groups is left in either cluster.
func noKinds(ctx context.Context, groups ...string) {
	GinkgoHelper()
	for _, c := range []client.Client{clients.Host, clients.DPU} {
		Eventually(func(ctx context.Context) ([]string, error) {
			var all apiextensionsv1.CustomResourceDefinitionList
			err := c.List(ctx, &all)
			var left []string
			for i := range all.Items {
				if slices.Contains(groups, all.Items[i].Spec.Group) {
					left = append(left, all.Items[i].Name)
				}
			}
			return left, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
	}
}
