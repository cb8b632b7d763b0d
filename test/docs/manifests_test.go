package docs

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// decode reads every object of a file or text; an unknown or doubled field is
// an error.
func decode(t *testing.T, where, content string) []client.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, storagev1alpha1.AddHostToScheme, storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddPodsToScheme, pavv1alpha1.AddToScheme,
		moorv1alpha1.AddHostToScheme, moorv1alpha1.AddDPUToScheme, snapshotv1.AddToScheme, groupsnapshotv1beta2.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := utilyaml.NewYAMLReader(bufioReader(content))
	var out []client.Object
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Errorf("%s: %v\n%s", where, err, document)
			continue
		}
		out = append(out, object.(client.Object))
	}
}

// manifests are the objects of every manifest of one cluster, by file.
func manifests(t *testing.T, cluster string) map[string][]client.Object {
	t.Helper()
	out := map[string][]client.Object{}
	for _, pattern := range []string{"*.yaml", "attach-*/*.yaml", "snapshots/*.yaml", "power/*.yaml", "workloads/*.yaml"} {
		files, err := filepath.Glob(path("deploy", cluster, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			out[file] = decode(t, file, read(t, file))
		}
	}
	return out
}

// names are "Kind/name" of all objects.
func names(files map[string][]client.Object) map[string]bool {
	out := map[string]bool{}
	for _, objects := range files {
		for _, o := range objects {
			out[o.GetObjectKind().GroupVersionKind().Kind+"/"+o.GetName()] = true
		}
	}
	return out
}

// TestManifests decodes all of deploy/, and checks what each object refers to.
func TestManifests(t *testing.T) {
	for _, cluster := range []string{"host", "dpu", "pav", "local"} {
		files := manifests(t, cluster)
		have := names(files)
		if cluster == "dpu" { // which has those of pods as volumes too, if these are a vendor
			maps.Copy(have, names(manifests(t, "pav")))
		}
		for file, objects := range files {
			t.Run(strings.TrimPrefix(file, root+"/"), func(t *testing.T) {
				for _, o := range objects {
					checkObject(t, have, o)
				}
			})
		}
	}
	for _, name := range []string{"storage.yaml", "statefulset.yaml", "local-driver.yaml", "pods/greeting.yaml"} {
		decode(t, name, read(t, path("deploy", "examples", name)))
	}
}

// schedulerConfig begins the names of those that are no objects of a cluster but
// files of kube-scheduler.
const schedulerConfig = "kube-scheduler-config"

// TestSchedulerManifests does the same for deploy/scheduler, which goes into
// the host cluster.
func TestSchedulerManifests(t *testing.T) {
	found, err := filepath.Glob(path("deploy", "scheduler", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]client.Object{}
	for _, file := range found {
		if !strings.HasPrefix(filepath.Base(file), schedulerConfig) {
			files[file] = decode(t, file, read(t, file))
		}
	}
	have := names(files)
	for _, objects := range files {
		for _, o := range objects {
			checkObject(t, have, o)
		}
	}
}

// builtIn are the roles that every cluster has.
var builtIn = []string{"system:kube-scheduler", "system:volume-scheduler", "extension-apiserver-authentication-reader"}

func checkObject(t *testing.T, have map[string]bool, o client.Object) {
	t.Helper()
	switch o := o.(type) {
	case *appsv1.Deployment:
		checkPod(t, have, o.Spec.Template, o.Spec.Selector.MatchLabels)
	case *appsv1.DaemonSet:
		checkPod(t, have, o.Spec.Template, o.Spec.Selector.MatchLabels)
	case *rbacv1.RoleBinding:
		checkBinding(t, have, o.RoleRef, o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		checkBinding(t, have, o.RoleRef, o.Subjects)
	}
}

func checkBinding(t *testing.T, have map[string]bool, role rbacv1.RoleRef, subjects []rbacv1.Subject) {
	t.Helper()
	if !have[role.Kind+"/"+role.Name] && !slices.Contains(builtIn, role.Name) {
		t.Errorf("there is no %s %s", role.Kind, role.Name)
	}
	for _, s := range subjects {
		if !have[s.Kind+"/"+s.Name] {
			t.Errorf("there is no %s %s", s.Kind, s.Name)
		}
	}
}

func checkPod(t *testing.T, have map[string]bool, pod corev1.PodTemplateSpec, selector map[string]string) {
	t.Helper()
	for key, value := range selector {
		if pod.Labels[key] != value {
			t.Errorf("the pods do not have the selector's label %s=%s", key, value)
		}
	}
	spec := pod.Spec
	switch automount := spec.AutomountServiceAccountToken; {
	case spec.ServiceAccountName != "" && !have["ServiceAccount/"+spec.ServiceAccountName]:
		t.Errorf("there is no ServiceAccount %s", spec.ServiceAccountName)
	case spec.ServiceAccountName == "" && (automount == nil || *automount):
		t.Error("a pod without an account of its own mounts a token")
	}
	for _, c := range spec.Containers {
		checkContainer(t, have, c)
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("container %s mounts volume %s, which the pod does not have", c.Name, m.Name)
			}
		}
	}
}

// sidecars are the programs that are not ours; their flags are those that the
// test bed gives them too.
var sidecars = []string{
	"--csi-address", "--timeout", "--kube-api-qps", "--kube-api-burst", "--worker-threads", "--workers", "--max-entries", "--default-fstype", "--leader-election",
	"--enable-capacity", "--capacity-for-immediate-binding", "--capacity-ownerref-level", "--strict-topology", "--immediate-topology",
}

// programOf is the program that a container's image holds, if it is one of Moor's. Without what
// it calls it may be of a controller alone.
func programOf(t *testing.T, c corev1.Container) (program string, ours bool) {
	t.Helper()
	name, ours := strings.CutPrefix(strings.TrimSuffix(c.Image, ":dev"), registry)
	for _, i := range imageList(t).Images {
		if i.Name != name {
			continue
		}
		if strings.HasSuffix(name, "-controller") && strings.Contains(strings.Join(c.Args, " "), "--mode=node") {
			t.Errorf("container %s: image %s is of a controller", c.Name, c.Image)
		}
		return i.Program, ours
	}
	return "", ours
}

func checkContainer(t *testing.T, have map[string]bool, c corev1.Container) {
	t.Helper()
	known := sidecars
	held, ours := programOf(t, c)
	switch {
	case strings.HasPrefix(c.Image, "registry.k8s.io/kube-scheduler:"), held == "moor-scheduler" && c.Command[0] == held:
		return // its flags are kube-scheduler's
	case ours:
		if len(c.Command) != 1 || !slices.Contains(programs(t), c.Command[0]) || c.Command[0] != held {
			t.Errorf("container %s: command %q is not the program %q of the image %s", c.Name, c.Command, held, c.Image)
			return
		}
		known = nil
		for _, o := range options(t, c.Command[0]) {
			known = append(known, "--"+o.name)
		}
	}
	variables := map[string]bool{}
	for _, e := range c.Env {
		variables["$("+e.Name+")"] = true
	}
	for _, arg := range c.Args {
		flag, value, _ := strings.Cut(arg, "=")
		if !slices.Contains(known, flag) {
			t.Errorf("container %s: there is no flag %s", c.Name, flag)
		}
		if strings.HasPrefix(value, "$(") && !variables[value] && !ofService(have, value) {
			t.Errorf("container %s: %s is not in its environment", c.Name, value)
		}
	}
}

// ofService reports whether a value begins with the address of a Service that is there, which the kubelet
// gives to the pods of its namespace.
func ofService(have map[string]bool, value string) bool {
	variable, _, _ := strings.Cut(strings.TrimPrefix(value, "$("), ")")
	name, ok := strings.CutSuffix(variable, "_SERVICE_HOST")
	return ok && have["Service/"+strings.ToLower(strings.ReplaceAll(name, "_", "-"))]
}

// TestExamples decodes the example of every kind's page.
func TestExamples(t *testing.T) {
	crds, _ := definitions(t)
	for kind := range crds {
		t.Run(kind, func(t *testing.T) {
			_, rest, ok := strings.Cut(read(t, kindPage(kind)), "## Example\n\n```yaml\n")
			example, _, ended := strings.Cut(rest, "```")
			if !ok || !ended {
				t.Fatal("the page has no example")
			}
			objects := decode(t, kind, example)
			if len(objects) != 1 || objects[0].GetObjectKind().GroupVersionKind().Kind != kind {
				t.Errorf("the example is not one %s", kind)
			}
		})
	}
}

// TestKeysStayOffHosts: what has credentials for the DPU cluster does not run on a host
// with a DPU, as snap-csi-plugin's DaemonSet selects them, and a second one takes over
// when its node dies.
func TestKeysStayOffHosts(t *testing.T) {
	var hosts map[string]string
	var holders []*appsv1.Deployment
	for _, objects := range manifests(t, "host") {
		for _, o := range objects {
			switch o := o.(type) {
			case *appsv1.DaemonSet:
				hosts = o.Spec.Template.Spec.NodeSelector
			case *appsv1.Deployment:
				if slices.ContainsFunc(o.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil }) {
					holders = append(holders, o)
				}
			}
		}
	}
	if len(hosts) != 1 || len(holders) == 0 {
		t.Fatalf("hosts are selected by %v, %d Deployments have a Secret", hosts, len(holders))
	}
	for _, d := range holders {
		if *d.Spec.Replicas < 2 {
			t.Errorf("%s: %d replicas", d.Name, *d.Spec.Replicas)
		}
		affinity := d.Spec.Template.Spec.Affinity
		if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
			t.Errorf("%s may run anywhere", d.Name)
			continue
		}
		for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for label := range hosts {
				if !slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
					return e.Key == label && e.Operator == corev1.NodeSelectorOpDoesNotExist
				}) {
					t.Errorf("%s may run on hosts with the label %s", d.Name, label)
				}
			}
		}
	}
}

// TestNoWorkloadsBesideAccounts: the test bed applies deploy/host/*.yaml and
// deploy/dpu/*.yaml as they are, and starts the programs itself.
func TestNoWorkloadsBesideAccounts(t *testing.T) {
	for _, cluster := range []string{"host", "dpu", "pav", "local"} {
		for file, objects := range manifests(t, cluster) {
			for _, o := range objects {
				switch o.(type) {
				case *appsv1.Deployment, *appsv1.DaemonSet:
					if filepath.Base(filepath.Dir(file)) != "workloads" {
						t.Errorf("%s holds a workload: it belongs into workloads/", file)
					}
				}
			}
		}
	}
	if _, err := os.Stat(path("deploy", "image", "Dockerfile")); err != nil {
		t.Error(err)
	}
}
