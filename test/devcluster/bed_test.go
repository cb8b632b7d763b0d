//go:build bed

// These tests replace the bed that runs on this machine, hence a tag of their
// own: go test -tags bed ./test/devcluster
package devcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/moor-storage/moor/test/devcluster/cleanup"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

func TestBed(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if _, err := Up(ctx, Options{Nodes: 1, KubeletProfile: ProfileFast, DPUPods: true, Bare: true}, os.Stderr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { down(t) })
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("processes", func(t *testing.T) { processes(ctx, t, c) })
	t.Run("the pair shares a directory", func(t *testing.T) { shared(ctx, t, c) })
	t.Run("link", func(t *testing.T) { link(ctx, t, c) })
	t.Run("a pod on the DPU", func(t *testing.T) { podOnDPU(ctx, t, c) })
	t.Run("power", func(t *testing.T) { power(ctx, t, c) })
	t.Run("kubeconfig", func(t *testing.T) { kubeconfig(ctx, t, c) })
}

func down(t *testing.T) {
	if err := Down(context.Background(), os.Stderr); err != nil {
		t.Error(err)
	}
	left, err := cleanup.Leftovers()
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func processes(ctx context.Context, t *testing.T, c *Cluster) {
	p := Process{Name: "sleeper", Machine: "dpu-1", Argv: []string{"sh", "-c", "echo begun $WORD; exec sleep 1000"}, Env: []string{"WORD=here"}}
	if err := c.Start(ctx, p); err != nil {
		t.Fatal(err)
	}
	awaitWords(ctx, t, c, 1)
	if err := c.Start(ctx, p); err == nil {
		t.Error("a second start of a running process is not refused")
	}
	if err := c.Restart(ctx, "sleeper"); err != nil || !c.Running("sleeper") {
		t.Errorf("after a restart it runs: %v, %v", c.Running("sleeper"), err)
	}
	awaitWords(ctx, t, c, 2)
	if err := c.Kill("sleeper", syscall.SIGKILL); err != nil || c.Running("sleeper") {
		t.Errorf("after SIGKILL it runs: %v, %v", c.Running("sleeper"), err)
	}
	err := c.Start(ctx, Process{Name: "nothing", Machine: "hub", Argv: []string{"/no/such/program"}})
	if err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("error %v, want one that names the program", err)
	}
	if out, err := c.Exec(ctx, "dpu-1", "hostname"); err != nil || strings.TrimSpace(string(out)) != "dpu-1" {
		t.Errorf("host name %q, %v; want dpu-1", out, err)
	}
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := c.Exec(short, "dpu-1", "sleep", "1000"); err == nil {
		t.Error("a command outlived its context")
	}
}

// awaitWords waits until the log tells of so many starts.
func awaitWords(ctx context.Context, t *testing.T, c *Cluster, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := poll(ctx, 10*time.Millisecond, func(context.Context) (bool, error) {
		log, err := os.ReadFile(c.Log("sleeper"))
		return strings.Count(string(log), "begun here") == want, err
	})
	if err != nil {
		t.Fatalf("wait for start %d in the log: %v", want, err)
	}
}

func shared(ctx context.Context, t *testing.T, c *Cluster) {
	if _, err := c.Exec(ctx, "dpu-1", "touch", filepath.Join(layout.PCIeDir, "seen")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(ctx, "host-1", "test", "-e", filepath.Join(layout.PCIeDir, "seen")); err != nil {
		t.Error(err)
	}
	if _, err := c.Exec(ctx, "hub", "touch", filepath.Join(layout.TargetDir, "volume")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(ctx, "dpu-1", "test", "-e", filepath.Join(layout.TargetDir, "volume")); err != nil {
		t.Error(err)
	}
	if _, err := c.Exec(ctx, "hub", "cp", "--reflink=always", filepath.Join(layout.TargetDir, "volume"), filepath.Join(layout.TargetDir, "copy")); err != nil {
		t.Errorf("the target shares no data between files: %v", err)
	}
}

func power(ctx context.Context, t *testing.T, c *Cluster) {
	before, err := c.Exec(ctx, "host-1", "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.PowerOff(ctx, "host-1"); err != nil {
		t.Fatal(err)
	}
	if c.Running("kubelet-host-1") || !c.Running("host-apiserver") || !c.Running("kubelet-dpu-1") || !c.Running("containerd-dpu-1") {
		t.Error("a power-off ends the processes of that machine and no others")
	}
	if _, err := c.Exec(ctx, "host-1", "true"); err == nil {
		t.Error("a machine that is off runs commands")
	}
	if err := c.PowerOn(ctx, "host-1"); err != nil {
		t.Fatal(err)
	}
	after, err := c.Exec(ctx, "host-1", "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil || string(after) == string(before) {
		t.Errorf("boot identity %q after %q, %v; want a new one", after, before, err)
	}
	if err := c.awaitNodes(ctx, c.plane(HostCluster)); err != nil {
		t.Error(err)
	}
	pings(ctx, t, c, "after a power-off of the host", true)
	for name, end := range map[string]func() error{
		"killed":  func() error { return c.Kill("killed", syscall.SIGKILL) },
		"removed": func() error { return c.Remove("removed") },
	} {
		if err := errors.Join(c.Start(ctx, Process{Name: name, Machine: "dpu-1", Argv: []string{"sleep", "1000"}}), end()); err != nil || c.Running(name) {
			t.Fatalf("a process that was %s runs: %v, %v", name, c.Running(name), err)
		}
	}
	if err := c.PowerOff(ctx, "dpu-1"); err != nil {
		t.Fatal(err)
	}
	if c.Running("kubelet-dpu-1") || c.Running("containerd-dpu-1") || !c.Running("kubelet-host-1") {
		t.Error("a power-off of a DPU ends its kubelet and containerd, and not those of its host")
	}
	if err := c.PowerOn(ctx, "dpu-1"); err != nil {
		t.Fatal(err)
	}
	if !c.Running("killed") || c.Running("removed") {
		t.Errorf("with the power a process that was killed comes back: %v, want true; one that was removed: %v, want false", c.Running("killed"), c.Running("removed"))
	}
	if err := c.Remove("removed"); err != nil {
		t.Errorf("remove a process once more: %v", err)
	}
	pings(ctx, t, c, "after a power-off of the DPU", true)
	awaitMount(ctx, t, c, "after a power-off of the DPU")
}

// mounted is where the pod on the DPU mounts a file system of its own, as the DPU sees it.
const mounted = layout.MachineDataDir + "/bed-test"

// podOnDPU has the DPU cluster's scheduler place a pod, which mounts something for the DPU.
func podOnDPU(ctx context.Context, t *testing.T, c *Cluster) {
	client, err := c.client(DPUCluster)
	if err != nil {
		t.Fatal(err)
	}
	both := corev1.MountPropagationBidirectional
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "mounts"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "mounts", Image: BusyboxImage, ImagePullPolicy: corev1.PullNever,
				Command:         []string{"sh", "-c", "mkdir -p /shared/fs && mount -t tmpfs none /shared/fs && echo here >/shared/fs/word && echo mounted && exec sleep 1000"},
				SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
				VolumeMounts:    []corev1.VolumeMount{{Name: "shared", MountPath: "/shared", MountPropagation: &both}},
			}},
			Volumes: []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: mounted, Type: ptr.To(corev1.HostPathDirectoryOrCreate)},
			}}},
		},
	}
	if _, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitMount(ctx, t, c, "at first")
	placed, err := client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil || placed.Spec.NodeName != "dpu-1" {
		t.Errorf("the pod is on %q, %v; want dpu-1", placed.Spec.NodeName, err)
	}
	// The mount is there before the kubelet has told the API server that the container runs.
	err = c.await(ctx, "log of a pod on dpu-1", []string{"kubelet-dpu-1", "containerd-dpu-1"}, func(ctx context.Context) error {
		log, err := client.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && string(log) != "mounted\n" {
			err = fmt.Errorf("it is %q", log)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// awaitMount waits until processes of the DPU see what the pod mounts, which ends with the power.
func awaitMount(ctx context.Context, t *testing.T, c *Cluster, when string) {
	t.Helper()
	err := c.await(ctx, "mount of a pod on dpu-1", []string{"kubelet-dpu-1", "containerd-dpu-1", "dpu-scheduler"}, func(ctx context.Context) error {
		word, err := c.Exec(ctx, "dpu-1", "cat", mounted+"/fs/word")
		if err == nil && string(word) != "here\n" {
			err = fmt.Errorf("it has the word %q", word)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s the DPU does not see what a pod on it mounts: %v", when, err)
	}
}

// link cuts the link between host and DPU, and no other.
func link(ctx context.Context, t *testing.T, c *Cluster) {
	pings(ctx, t, c, "at first", true)
	if err := c.CutLink(ctx, 1); err != nil {
		t.Fatal(err)
	}
	pings(ctx, t, c, "when cut", false)
	if !reaches(ctx, c, layout.HostIP(1)) {
		t.Error("the cluster network is cut too")
	}
	if err := c.JoinLink(ctx, 1); err != nil {
		t.Fatal(err)
	}
	pings(ctx, t, c, "when repaired", true)
}

// reaches reports whether the DPU hears the kernel at an address: nothing
// listens on the port, so an answer is a refusal.
func reaches(ctx context.Context, c *Cluster, ip string) bool {
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := c.Exec(short, "dpu-1", "bash", "-c", "exec 3<>/dev/tcp/"+ip+"/9")
	return err != nil && strings.Contains(err.Error(), "refused")
}

// carrierWithin is how long a link may take until it carries: the kernel tells of
// a carrier once a second, and then asks for the neighbor's address anew.
const carrierWithin = 15 * time.Second

func pings(ctx context.Context, t *testing.T, c *Cluster, when string, want bool) {
	t.Helper()
	if !want {
		if reaches(ctx, c, layout.LinkHost) {
			t.Errorf("%s the DPU reaches its host on the link of their own", when)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, carrierWithin)
	defer cancel()
	if err := poll(ctx, tryEvery, func(ctx context.Context) (bool, error) { return reaches(ctx, c, layout.LinkHost), nil }); err != nil {
		t.Errorf("%s the DPU does not reach its host on the link of their own within %s: %v", when, carrierWithin, err)
	}
}

func kubeconfig(ctx context.Context, t *testing.T, c *Cluster) {
	for _, cluster := range []string{HostCluster, DPUCluster} {
		path, err := c.WriteKubeconfig(ctx, cluster, metav1.NamespaceDefault, "default")
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Discovery().ServerVersion(); err != nil {
			t.Errorf("the %s cluster refuses the token: %v", cluster, err)
		}
		if _, err := c.Exec(ctx, "dpu-1", "kubectl", "--kubeconfig", path, "version"); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.WriteKubeconfig(ctx, "third", "default", "default"); err == nil {
		t.Error("a cluster that is not there is accepted")
	}
}
